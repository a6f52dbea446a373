"""Items of an answer while they are written, and the typed events that report it.

A writer builds one item, and returns its events when it begins, for each piece, and when it is complete. The reply
numbers them (`response_reply.py`). Source: OpenAI's API reference, "Streaming events" of the Responses API.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from gateway.serve.generation.tools_and_formats import input_of
from gateway.serve.responses.items import SUMMARY, Item, text_part, tool_error
from gateway.serve.responses.response_tools import NamedTool, UnapprovedCall

ResponseEvent = dict[str, Any]

_TEXT_EVENTS: Final = {"message": "output_text", "summary": "reasoning_summary_text", "thought": "reasoning_text"}


class _Item:
    def __init__(self, index: int, prefix: str, item: Item) -> None:
        self.index = index
        self._prefix = prefix
        self.item: Item = {"id": "", **item}
        self.done = False
        self._pieces: list[str] = []

    def named(self, name: str) -> None:
        """Set the item's id, before its first event."""
        self.item["id"] = f"{self._prefix}_{name}"

    def _tell(self, kind: str, **fields: Any) -> ResponseEvent:
        return {"type": f"response.{kind}", "item_id": self.item["id"], "output_index": self.index, **fields}

    def _added(self) -> ResponseEvent:
        return {"type": "response.output_item.added", "output_index": self.index, "item": dict(self.item)}

    def _ended(self) -> ResponseEvent:
        self.done = True
        return {"type": "response.output_item.done", "output_index": self.index, "item": self.item}

    def break_off(self) -> list[ResponseEvent]:
        """End the item as incomplete: clients would wait forever for an item that has begun but never ends."""
        self.item["status"] = "incomplete"
        return [self._ended()]


class TextWriter(_Item):
    """A message or reasoning, with one text."""

    def __init__(self, index: int, kind: Literal["message", "summary", "thought"]) -> None:
        """`summary`, `thought`: reasoning, shown as a summary or as reasoning text."""
        no_parts: list[Item] = []
        if kind == "message":
            item: Item = {"type": "message", "role": "assistant", "status": "in_progress", "content": no_parts}
            super().__init__(index, "msg", item)
        else:
            super().__init__(index, "rs", {"type": "reasoning", "summary": no_parts})
        self.kind = kind
        self._text_event = _TEXT_EVENTS[kind]
        self._part_event = "reasoning_summary_part" if kind == "summary" else "content_part"
        self._place = {"summary_index": 0} if kind == "summary" else {"content_index": 0}
        self._logprobs: list[Item] = []

    def begin(self) -> list[ResponseEvent]:
        """Begin the item and its only part."""
        return [self._added(), self._tell(f"{self._part_event}.added", **self._place, part=self._part(""))]

    def add(self, piece: str, logprobs: Sequence[Item] = ()) -> list[ResponseEvent]:
        """Add a piece of text. `logprobs`: its ids with log probabilities, where the client wants them."""
        self._pieces.append(piece)
        self._logprobs += logprobs
        return [self._tell(f"{self._text_event}.delta", **self._place, delta=piece, **self._logprobs_field(logprobs))]

    def _logprobs_field(self, logprobs: Sequence[Item]) -> Item:
        return {"logprobs": [*logprobs]} if self.kind == "message" else {}

    def end(self, *, whole: bool, seal: Callable[[str], str] | None) -> list[ResponseEvent]:
        """End the item. `whole`: no limit cut it; `seal`: seals reasoning, where the client keeps it."""
        text = "".join(self._pieces)
        part = {**self._part(text), **self._logprobs_field(self._logprobs)}
        if self.kind == "message":
            self.item |= {"content": [part], "status": "completed" if whole else "incomplete"}
        else:
            self.item["summary" if self.kind == "summary" else "content"] = [part]
            if seal is not None:
                self.item["encrypted_content"] = seal(text)
        return [
            self._tell(f"{self._text_event}.done", **self._place, text=text, **self._logprobs_field(self._logprobs)),
            self._tell(f"{self._part_event}.done", **self._place, part=part),
            self._ended(),
        ]

    def _part(self, text: str) -> Item:
        if self.kind == "message":
            return text_part("assistant", text)
        return {"type": "summary_text" if self.kind == "summary" else "reasoning_text", "text": text}


class SummaryWriter(_Item):
    """A summary that stands for what precedes it."""

    def __init__(self, index: int, packed: str) -> None:
        super().__init__(index, "cmp", {"type": SUMMARY, "encrypted_content": ""})
        self._packed = packed

    def whole(self) -> list[ResponseEvent]:
        """The whole item, with its events."""
        begun = [self._added(), self._tell("compaction.compacting")]
        self.item["encrypted_content"] = self._packed
        return [*begun, self._ended()]


class CallWriter(_Item):
    """A call of one of the client's functions."""

    def __init__(self, index: int, call_id: str, tool: NamedTool) -> None:
        super().__init__(index, "fc", _client_call("function_call", call_id, tool, "arguments"))

    def begin(self) -> list[ResponseEvent]:
        """Begin the item."""
        return [self._added()]

    def add(self, piece: str) -> list[ResponseEvent]:
        """Add a piece of its arguments."""
        self._pieces.append(piece)
        return [self._tell("function_call_arguments.delta", delta=piece)]

    def end(self, arguments: str) -> list[ResponseEvent]:
        """End the complete call."""
        self.item |= {"arguments": arguments, "status": "completed"}
        return [self._tell("function_call_arguments.done", arguments=arguments), self._ended()]

    def break_off(self) -> list[ResponseEvent]:
        """End the incomplete call, with its arguments as far as they came."""
        self.item["arguments"] = "".join(self._pieces)
        return super().break_off()


class CustomWriter(_Item):
    """A call of one of the client's free-form tools, whose input is known only when the call is complete."""

    def __init__(self, index: int, call_id: str, tool: NamedTool) -> None:
        super().__init__(index, "ctc", _client_call("custom_tool_call", call_id, tool, "input"))

    def begin(self) -> list[ResponseEvent]:
        """Begin the item."""
        return [self._added()]

    def add(self, piece: str) -> list[ResponseEvent]:
        """Return no events: a piece is JSON that encodes the input, not the input itself."""
        return []

    def end(self, arguments: str) -> list[ResponseEvent]:
        """End the complete call, with its input in one piece."""
        text = input_of(arguments)
        self.item |= {"input": text, "status": "completed"}
        return [
            self._tell("custom_tool_call_input.delta", delta=text),
            self._tell("custom_tool_call_input.done", input=text),
            self._ended(),
        ]


class SearchWriter(_Item):
    """A search for tools, whose arguments are shown when they are complete. `call_id`: None if the gateway runs it."""

    def __init__(self, index: int, call_id: str | None) -> None:
        no_arguments: Item = {}
        execution = "server" if call_id is None else "client"
        item: Item = {"type": "tool_search_call", "call_id": call_id, "execution": execution}
        super().__init__(index, "tsc", {**item, "arguments": no_arguments, "status": "in_progress"})

    def begin(self) -> list[ResponseEvent]:
        """Begin the item."""
        return [self._added()]

    def add(self, piece: str) -> list[ResponseEvent]:
        """Return no events: the arguments are an object."""
        return []

    def end(self, arguments: str) -> list[ResponseEvent]:
        """End the complete call."""
        try:
            given: object = json.loads(arguments)
        except ValueError:
            given = arguments
        self.item |= {"arguments": given, "status": "completed"}
        return [self._ended()]


class FoundWriter(_Item):
    """What a search that the gateway ran has found."""

    def __init__(self, index: int, tools: list[Item]) -> None:
        item: Item = {"type": "tool_search_output", "call_id": None, "execution": "server", "status": "completed"}
        super().__init__(index, "tso", {**item, "tools": tools})

    def whole(self) -> list[ResponseEvent]:
        """All events of the item."""
        return [self._added(), self._ended()]


class ApprovalWriter(_Item):
    """The approval request for a complete call of one of the gateway's tools."""

    def __init__(self, index: int, call: UnapprovedCall, ask: Callable[[str, Item], str]) -> None:
        """`ask` returns its id, given a name and the item."""
        item = {"server_label": call.server, "name": call.tool, "arguments": call.arguments}
        super().__init__(index, "", {"type": "mcp_approval_request", **item})
        self._ask = ask

    def named(self, name: str) -> None:
        """Set the item's id."""
        self.item["id"] = self._ask(name, self.item)

    def whole(self) -> list[ResponseEvent]:
        """All events of the item."""
        return [self._added(), self._ended()]


class RunWriter(_Item):
    """A call that the gateway runs."""

    def __init__(self, index: int, server: str, name: str, approval: str | None = None) -> None:
        item: Item = {"type": "mcp_call", "server_label": server, "name": name, "arguments": ""}
        item |= {"approval_request_id": approval, "output": None, "error": None, "status": "in_progress"}
        super().__init__(index, "mcp", item)

    def begin(self) -> list[ResponseEvent]:
        """Begin the item."""
        return [self._added(), self._tell("mcp_call.in_progress")]

    def add(self, piece: str) -> list[ResponseEvent]:
        """Add a piece of its arguments."""
        self._pieces.append(piece)
        return [self._tell("mcp_call_arguments.delta", delta=piece)]

    def end(self, arguments: str) -> list[ResponseEvent]:
        """End its arguments, which are complete."""
        self.item["arguments"] = arguments
        return [self._tell("mcp_call_arguments.done", arguments=arguments)]

    def finish(self, text: str, *, is_error: bool) -> list[ResponseEvent]:
        """End the call that was run, with its result."""
        status = "failed" if is_error else "completed"
        self.item |= {"error": tool_error(text)} if is_error else {"output": text}
        self.item["status"] = status
        return [self._tell(f"mcp_call.{status}"), self._ended()]

    def break_off(self) -> list[ResponseEvent]:
        """End a call that was not run, and that may be incomplete."""
        self.item["arguments"] = self.item["arguments"] or "".join(self._pieces)
        return [self._tell("mcp_call.failed"), *super().break_off()]


class ListWriter(_Item):
    """The tools of a server, as the model sees them."""

    def __init__(self, index: int, server: str, tools: list[Item]) -> None:
        no_tools: list[Item] = []
        super().__init__(index, "mcpl", {"type": "mcp_list_tools", "server_label": server, "tools": no_tools})
        self._tools = tools

    def whole(self) -> list[ResponseEvent]:
        """All events of the list."""
        begun = [self._added(), self._tell("mcp_list_tools.in_progress")]
        self.item["tools"] = self._tools
        return [*begun, self._tell("mcp_list_tools.completed"), self._ended()]


def _client_call(kind: str, call_id: str, tool: NamedTool, content: str) -> Item:
    """A call that the client makes, at its beginning. `content`: the key of its arguments or its input."""
    namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
    call = {"type": kind, "call_id": call_id, "name": tool.name, **namespace}
    return {**call, content: "", "status": "in_progress"}
