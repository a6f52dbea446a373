"""What a script is made of: one request a step, with what the client answers when it is asked meanwhile.

Data only. `everything.py` and `others.py` write scripts, `client.py` plays them.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

STEP_KEY = "com.example/step"
"""Names the step in the `_meta` of its request. Servers ignore it, so the gateway has to carry it; the replay server
finds its answer by it."""


@dataclass(frozen=True, slots=True)
class Step:
    """One request, the same in both eras but for its envelope."""

    name: str
    method: str
    params: dict[str, Any] = field(default_factory=dict)
    answers: tuple[dict[str, Any], ...] = ()
    """Results for what the server asks in the course of it, in order."""
    progress: bool = False
    """Whether it carries a progress token."""
    hears: int = 0
    """How many pushes belong to it; they may come after the answer, on another stream."""
    cancel: bool = False
    """Cancelled at the first push; never answered."""
    eras: Literal["both", "handshake"] = "both"
    own: bool = False
    """Answered by the gateway itself, for all servers behind it: only whether it is an error is compared."""
    unasked: bool = False
    """A modern client says here that it can't be asked for anything, so that the session which all share will do."""
    modern: Literal["same", "listen", "unlisten"] = "same"
    """What a modern client does instead: opens or closes a `subscriptions/listen` stream for `params["uri"]`."""


def call(step: str, tool: str, /, arguments: dict[str, Any] | None = None, **more: Any) -> Step:
    """A call of a tool."""
    params: dict[str, Any] = {"name": tool}
    if arguments is not None:
        params["arguments"] = arguments
    return Step(step, "tools/call", params, **more)
