"""Tool results as raw dicts: the error results that we write ourselves, how a call ended, how large a
result is, what objects a list holds.

Pure. It knows no upstream and no token id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from gateway.observe.audit import IdsSource

Ending = Literal["ok", "tool_error", "timeout", "unavailable", "refused"]
"""How a call that has a result ended, in the words of the metrics and the audit log."""


class CallOutcome(NamedTuple):
    """The result of a call, and what the gateway knows about the call."""

    result: dict[str, Any]
    ended: Ending
    server: str = ""
    """The server that was called; empty if the gateway itself answered."""
    tool: str = ""
    """The tool's own name on that server."""
    seconds: float = 0.0
    """Seconds from when the server was found to the result."""
    source: IdsSource = "none"
    ids: int = 0
    """How many ids are sent with the result."""
    map_id: str | None = None
    """The map that the client named."""


@dataclass(frozen=True, slots=True)
class WrittenIds:
    """What our own agent passes along with a call; whoever passes it can read ids in the result."""

    ids: tuple[int, ...] | None
    """The ids that the model wrote, in the engine's tokenizer, which every accepted map was proven to be."""
    name: str | None
    """The tool's name as `ids` spell it, if they spell the whole call; None: they spell only the arguments."""


def error_result(text: str) -> dict[str, Any]:
    """A CallToolResult that tells the model what went wrong (MCP tools, "Error Handling")."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def ending_of(result: Mapping[str, Any]) -> Ending:
    """How a call ended, by its server's result."""
    return "tool_error" if result.get("isError") is True else "ok"


def objects_in(value: object) -> list[dict[str, Any]]:
    """The objects in a JSON list; none if it is not a list."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [item for item in items if isinstance(item, dict)]


def exceeds(value: object, limit: int) -> bool:
    """Whether the strings in a JSON value, keys included, take more than `limit` bytes; counting stops there."""
    left = limit
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            left -= len(item) if item.isascii() else len(item.encode("utf-8", "surrogatepass"))
        elif isinstance(item, Mapping):
            fields = cast("Mapping[str, object]", item)
            waiting += fields.keys()
            waiting += fields.values()
        elif isinstance(item, list):
            waiting += cast("list[object]", item)
            # Numbers count too: JSON needs at least two bytes for each item of a list.
            left -= 2 * len(cast("list[object]", item))
        if left < 0:
            return True
    return False
