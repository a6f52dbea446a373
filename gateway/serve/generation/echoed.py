"""An answer that a client sends back in pieces, as one message: content, reasoning and calls.

In some APIs the pieces include calls that the gateway ran. They are not part of the message, since the memory restores
them with their original ids; they are kept beside it (`RETOLD`), in case the memory has forgotten them. Pure.
"""

from collections.abc import Sequence
from typing import Any, Literal

from gateway.context.history.client_messages import RETOLD, checked_message
from gateway.context.memory import FOUND_TOOLS

_Message = dict[str, Any]
Said = Literal["content", "reasoning_content"]


class EchoedAnswer:
    """Collects the pieces of one answer."""

    def __init__(self, where: str) -> None:
        """`where`: its place in the request, for error messages."""
        self.message: _Message = {"role": "assistant", "content": ""}
        self._where = where
        self._said: dict[Said, list[str]] = {}
        self._behind: dict[Said, list[str]] = {}
        """The part of `_said` after the last call that the gateway ran."""
        self._calls: list[_Message] = []
        self._ran: list[_Message] = []

    @property
    def last_call(self) -> str:
        """The id of the last call that the client is to make; "" where there is none."""
        return self._calls[-1]["id"] if self._calls else ""

    def say(self, field: Said, text: str) -> None:
        """Add a piece of its content or reasoning."""
        self._said.setdefault(field, []).append(text)
        self._behind.setdefault(field, []).append(text)

    def call(self, call_id: str, name: str, arguments: str) -> None:
        """Add a call that the client is to make."""
        self._calls.append(_call(call_id, name, arguments))

    def ran(self, call_id: str, name: str, arguments: str, result: str, found: Sequence[str] = ()) -> None:
        """Add a call that the gateway ran. `found`: names of the tools that it found. Raises `RequestInvalid`."""
        called = {"role": "assistant", **_joined(self._behind), "tool_calls": [_call(call_id, name, arguments)]}
        told = {"role": "tool", "tool_call_id": call_id, "content": result}
        self._ran += [checked_message(each, self._where) for each in (called, told)]
        if found:
            self._ran[-1][FOUND_TOOLS] = found
        self._behind.clear()

    def end(self) -> _Message:
        """Return the message; call it again after adding more calls. The texts are joined here, not piece by piece."""
        self.message |= _joined(self._said)
        calls = {"tool_calls": self._calls} if self._calls else {}
        self.message |= calls
        if self._ran:
            last = [{"role": "assistant", **_joined(self._behind), **calls}] if self._behind or calls else []
            self.message[RETOLD] = [*self._ran, *last]
        return self.message


def _joined(said: dict[Said, list[str]]) -> _Message:
    return {"content": "", **{field: "".join(texts) for field, texts in said.items()}}


def _call(call_id: str, name: str, arguments: str) -> _Message:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
