"""The shapes of calls in a chat completion: of functions, of free-form tools, and the old one of an answer's only call.

The input of a free-form tool is known only when the call is whole: until then the model writes JSON that encodes it.
Source: OpenAI's API reference, "Create chat completion" (`custom` tools; `functions` and `function_call`). Pure.
"""

from collections.abc import Collection
from typing import Any, Final

from gateway.serve.generation.client_tools import input_of
from gateway.toolcalls import CallArguments, CallClosed, CallStarted, Event
from gateway.toolcalls.stream.events import event_delta

_Delta = dict[str, Any]

_OLD_REASONS: Final = {"tool_calls": "function_call"}


class CallShapes:
    """How the calls of one answer are shown."""

    def __init__(self, free_form: Collection[str] = (), *, old: bool = False) -> None:
        """`free_form`: names of the client's free-form tools. `old`: the client sent `functions`."""
        self._free_form = free_form
        self._old = old
        self._open: set[int] = set()
        """Calls of free-form tools that are not whole yet."""

    def delta(self, event: Event) -> _Delta | None:
        """An event's delta; None for one that has none."""
        match event:
            case CallStarted(name=name) if self._old:
                return {"function_call": {"name": name, "arguments": ""}}
            case CallArguments(fragment=fragment) if self._old:
                return {"function_call": {"arguments": fragment}}
            case CallStarted(index, call_id, name) if name in self._free_form:
                self._open.add(index)
                custom = {"name": name, "input": ""}
                return {"tool_calls": [{"index": index, "id": call_id, "type": "custom", "custom": custom}]}
            case CallArguments(index=index) if index in self._open:
                return None
            case CallClosed(index=index, arguments=arguments) if index in self._open:
                self._open.discard(index)
                return {"tool_calls": [{"index": index, "custom": {"input": input_of(arguments)}}]}
            case _:
                return event_delta(event)

    def message(self, calls: list[_Delta]) -> _Delta:
        """The fields of a whole message for its calls, which are given in the shape of functions."""
        if not calls:
            return {}
        return {"function_call": calls[0]["function"]} if self._old else {"tool_calls": list(map(self._whole, calls))}

    def _whole(self, call: _Delta) -> _Delta:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name not in self._free_form:
            return call
        return {"id": call["id"], "type": "custom", "custom": {"name": name, "input": input_of(arguments)}}

    def reason(self, reason: str) -> str:
        """Why the answer ended, in the words of the shape."""
        return _OLD_REASONS.get(reason, reason) if self._old else reason
