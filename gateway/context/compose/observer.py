"""What is recorded of an answer while it is made, for whoever looks at it afterwards."""

from dataclasses import dataclass, field

from gateway.context.memory import CallRecord, GenerationRecord
from gateway.observe.trajectories import Sampled


@dataclass(slots=True)
class Observer:
    """The records of one answer that is being made."""

    watched: bool = False
    """Whether somebody is watching: only then there are records of generations and calls."""
    logprobs: bool = False
    """Whether the engine is asked how probable its ids were."""
    sampled: list[Sampled] = field(default_factory=list[Sampled])
    """The model's turns."""
    generations: list[GenerationRecord] = field(default_factory=list[GenerationRecord])
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
