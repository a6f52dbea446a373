"""Tool results as raw dicts: the error results that we write ourselves, how a call ended, and how large a result is.

Pure. It knows no upstream and no token id.
"""

from collections.abc import Mapping
from typing import Any, cast


def error_result(text: str) -> dict[str, Any]:
    """A CallToolResult that tells the model what went wrong (MCP tools, "Error Handling")."""
    return {"content": [{"type": "text", "text": text}], "isError": True}


class Failed(dict[str, Any]):
    """The error result of a call that its server did not answer, and why, which nobody sees who only reads the dict."""

    def __init__(self, text: str, outcome: str) -> None:
        """`outcome`: as in the metrics and the audit log."""
        super().__init__(error_result(text))
        self.outcome = outcome


def outcome_of(result: Mapping[str, Any]) -> str:
    """How a call ended that gave this result, in the words of the metrics and the audit log."""
    if isinstance(result, Failed):
        return result.outcome
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
            fields = cast(Mapping[str, object], item)
            waiting += fields.keys()
            waiting += fields.values()
        elif isinstance(item, list):
            waiting += cast(list[object], item)
            # A list of numbers is size as well: two bytes an item is the least that JSON needs.
            left -= 2 * len(cast(list[object], item))
        if left < 0:
            return True
    return False
