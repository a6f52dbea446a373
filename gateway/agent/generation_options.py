"""What one generation is asked to do: by the request, by the agent's rules, and by who hears of its calls."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.agent.choice import Hold
from gateway.engine.interface import Sampling
from gateway.toolcalls import CallClosed


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What one generation is asked to do."""

    max_tokens: int
    sampling: Sampling
    hold: Hold | None = None
    stops: tuple[str, ...] = ()
    one_call: bool = False
    """End behind the first call, whatever the model goes on with."""
    ids: bool = False
    """Whether ids are emitted as they come, before what they say."""
    logprobs: int | None = None
    """How many of the likeliest ids are told with each that content is read from; None: nothing of it is."""
    first_index: int = 0
    """Calls that the response already shows: indexes are counted over the whole response."""
    tells: Callable[[str], bool] = lambda name: True
    """Whether the events of a tool's calls are told; others run in silence."""
    shows: Callable[[str], bool] = lambda name: True
    """Whether its calls are part of the answer that a client sends back."""
    on_call: Callable[[CallClosed, int], None] = lambda call, room: None
    """Hears of each call the moment it is closed, while the model may still be writing, and of the ids of context that
    are then left."""
