"""Tool results as raw dicts: the error results that we write ourselves, how a call ended, and how large a result is.

Pure. It knows no upstream and no token id.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

Ending = Literal["ok", "tool_error", "timeout", "unavailable"]
"""How a call ended that has a result, in the words of the metrics and the audit log."""
Source = Literal["leaf", "shim", "mixed", "none"]
"""Who made the ids that leave with a result."""


class CallOutcome(NamedTuple):
    """A request that has a result: the result, and what the gateway knows of it besides. It goes back as a whole."""

    result: dict[str, Any]
    ended: Ending
    server: str = ""
    """Of a tool's call; empty where the gateway itself answered."""
    tool: str = ""
    """Its own name on that server."""
    seconds: float = 0.0
    """From when its server was found to the result."""
    source: Source = "none"
    ids: int = 0
    """How many leave with the result."""
    map_id: str | None = None
    """The map that its client speaks."""


@dataclass(frozen=True, slots=True)
class WrittenIds:
    """What our own agent says beside a call; whoever says it reads ids in the result."""

    ids: tuple[int, ...] | None
    """Those that the model wrote, of the engine's tokenizer (every accepted map was proven to be that one)."""
    name: str | None
    """The tool's name in them, where they spell the whole call and not the arguments alone."""


def error_result(text: str) -> dict[str, Any]:
    """A CallToolResult that tells the model what went wrong (MCP tools, "Error Handling")."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


def ending_of(result: Mapping[str, Any]) -> Ending:
    """How a call ended that its server answered with this."""
    return "tool_error" if result.get("isError") is True else "ok"


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
            # A list of numbers is size as well: two bytes an item is the least that JSON needs.
            left -= 2 * len(cast("list[object]", item))
        if left < 0:
            return True
    return False
