"""What one generation is asked to do: by the request, by the agent's rules, and by whoever receives its calls."""

from collections.abc import Callable
from dataclasses import dataclass

from gateway.agent.generate.choice import Hold
from gateway.engine.interface import Sampling
from gateway.toolcalls.stream.output_events import CallClosed


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What one generation is asked to do."""

    max_tokens: int
    sampling: Sampling
    hold: Hold | None = None
    stops: tuple[str, ...] = ()
    one_call: bool = False
    """Whether to end after the first call, whatever the model would write next."""
    ids: bool = False
    """Whether ids are emitted as they arrive, before the events that are read from them."""
    logprobs: int | None = None
    """How many of the likeliest ids are reported for each id of the content; None: no probabilities are reported."""
    first_index: int = 0
    """Number of calls that the response already shows: indexes count over the whole response."""
    tells: Callable[[str], bool] = lambda name: True
    """Whether the events of a tool's calls are emitted; other calls run silently."""
    shows: Callable[[str], bool] = lambda name: True
    """Whether a tool's calls are part of the answer that a client sends back."""
    asks: Callable[[CallClosed], bool] = lambda call: False
    """Whether a call is left to the client, to make or to approve."""
    on_call: Callable[[CallClosed, int], None] = lambda call, room: None
    """Takes each call as soon as it is closed, while the model may still be writing, and the ids of context that are
    left at that moment."""
    words: bool = False
    """Whether the model has to answer in words: it is kept from beginning a call, and whatever it writes is text."""
