"""Items of an answer while they are written, and the typed events that tell of it.

A writer knows one item: what it says when it begins, with each piece, and when it is whole. Numbers of events are the
reply's (`reply.py`). Source: OpenAI's API reference, "Streaming events" of the Responses API.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, cast

from gateway.serve.responses.items import Item, text_part, tool_error
from gateway.serve.responses.tools import ClientTool

Event = dict[str, Any]

_TEXT_EVENTS: Final = {"message": "output_text", "summary": "reasoning_summary_text", "thought": "reasoning_text"}


class _Item:
    def __init__(self, index: int, prefix: str, item: Item) -> None:
        self.index = index
        self._prefix = prefix
        self.item: Item = {"id": "", **item}
        self.done = False
        self._pieces: list[str] = []

    def named(self, name: str) -> None:
        """It gets its id, before anything is told of it."""
        self.item["id"] = f"{self._prefix}_{name}"

    def _tell(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", "item_id": self.item["id"], "output_index": self.index, **fields}

    def _added(self) -> Event:
        return {"type": "response.output_item.added", "output_index": self.index, "item": dict(self.item)}

    def _ended(self) -> Event:
        self.done = True
        return {"type": "response.output_item.done", "output_index": self.index, "item": self.item}

    def break_off(self) -> list[Event]:
        """It ends as far as it came: what has begun is ended, or clients wait for it in silence."""
        self.item["status"] = "incomplete"
        return [self._ended()]


class TextWriter(_Item):
    """A message, or what the model thinks: one text."""

    def __init__(self, index: int, kind: Literal["message", "summary", "thought"]) -> None:
        """`summary`, `thought`: what it thinks, told as a summary or as it is."""
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
        self._weights: list[Item] = []

    def begin(self) -> list[Event]:
        """It is there."""
        return [self._added(), self._tell(f"{self._part_event}.added", **self._place, part=self._part(""))]

    def add(self, piece: str, weights: Sequence[Item] = ()) -> list[Event]:
        """Its next piece. `weights`: the ids of it, where their probabilities are told."""
        self._pieces.append(piece)
        self._weights += weights
        return [self._tell(f"{self._text_event}.delta", **self._place, delta=piece, **self._weighed(weights))]

    def _weighed(self, weights: Sequence[Item]) -> Item:
        return {"logprobs": [*weights]} if self.kind == "message" else {}

    def end(self, *, whole: bool, seal: Callable[[str], str] | None) -> list[Event]:
        """It is over. `whole`: no limit cut it; `seal`: seals what the model thought, where a client keeps it."""
        text = "".join(self._pieces)
        part = {**self._part(text), **self._weighed(self._weights)}
        if self.kind == "message":
            self.item |= {"content": [part], "status": "completed" if whole else "incomplete"}
        else:
            self.item["summary" if self.kind == "summary" else "content"] = [part]
            if seal is not None:
                self.item["encrypted_content"] = seal(text)
        return [
            self._tell(f"{self._text_event}.done", **self._place, text=text, **self._weighed(self._weights)),
            self._tell(f"{self._part_event}.done", **self._place, part=part),
            self._ended(),
        ]

    def _part(self, text: str) -> Item:
        if self.kind == "message":
            return text_part("assistant", text)
        return {"type": "summary_text" if self.kind == "summary" else "reasoning_text", "text": text}


class CallWriter(_Item):
    """A call of a function of the client's."""

    def __init__(self, index: int, call_id: str, tool: ClientTool) -> None:
        namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
        item = {"type": "function_call", "call_id": call_id, "name": tool.name, **namespace, "arguments": ""}
        super().__init__(index, "fc", {**item, "status": "in_progress"})

    def begin(self) -> list[Event]:
        """It is there."""
        return [self._added()]

    def add(self, piece: str) -> list[Event]:
        """The next piece of its arguments."""
        self._pieces.append(piece)
        return [self._tell("function_call_arguments.delta", delta=piece)]

    def end(self, arguments: str) -> list[Event]:
        """It is whole."""
        self.item |= {"arguments": arguments, "status": "completed"}
        return [self._tell("function_call_arguments.done", arguments=arguments), self._ended()]

    def break_off(self) -> list[Event]:
        """It is not whole: its arguments are as far as they came."""
        self.item["arguments"] = "".join(self._pieces)
        return super().break_off()


class CustomWriter(_Item):
    """A call of a free-form tool of the client's, whose input is known when it is whole."""

    def __init__(self, index: int, call_id: str, tool: ClientTool) -> None:
        namespace = {} if tool.namespace is None else {"namespace": tool.namespace}
        item = {"type": "custom_tool_call", "call_id": call_id, "name": tool.name, **namespace, "input": ""}
        super().__init__(index, "ctc", {**item, "status": "in_progress"})

    def begin(self) -> list[Event]:
        """It is there."""
        return [self._added()]

    def add(self, piece: str) -> list[Event]:
        """The next piece of the JSON in which the input stands."""
        return []

    def end(self, arguments: str) -> list[Event]:
        """It is whole."""
        text = _input_of(arguments)
        self.item |= {"input": text, "status": "completed"}
        return [
            self._tell("custom_tool_call_input.delta", delta=text),
            self._tell("custom_tool_call_input.done", input=text),
            self._ended(),
        ]


class QuestionWriter(_Item):
    """A call of one of the gateway's tools that the client is to approve: told when it is whole."""

    def __init__(self, index: int, tool: ClientTool, ask: Callable[[str, Item], str]) -> None:
        """`ask` gives its id, of a name and of what it is when it is whole."""
        item = {"type": "mcp_approval_request", "server_label": tool.namespace, "name": tool.name, "arguments": ""}
        super().__init__(index, "", item)
        self._ask = ask
        self._name = ""

    def named(self, name: str) -> None:
        """Its id is known when it is whole."""
        self._name = name

    def begin(self) -> list[Event]:
        """Nothing can be asked yet."""
        return []

    def add(self, piece: str) -> list[Event]:
        """Nor now."""
        return []

    def end(self, arguments: str) -> list[Event]:
        """It is whole."""
        self.item["arguments"] = arguments
        self.item["id"] = self._ask(self._name, self.item)
        return [self._added(), self._ended()]

    def break_off(self) -> list[Event]:
        """Nothing is asked."""
        return []


class RunWriter(_Item):
    """A call that the gateway runs."""

    def __init__(self, index: int, server: str, name: str, approval: str | None = None) -> None:
        item: Item = {"type": "mcp_call", "server_label": server, "name": name, "arguments": ""}
        item |= {"approval_request_id": approval, "output": None, "error": None, "status": "in_progress"}
        super().__init__(index, "mcp", item)

    def begin(self) -> list[Event]:
        """It is there."""
        return [self._added(), self._tell("mcp_call.in_progress")]

    def add(self, piece: str) -> list[Event]:
        """The next piece of its arguments."""
        self._pieces.append(piece)
        return [self._tell("mcp_call_arguments.delta", delta=piece)]

    def end(self, arguments: str) -> list[Event]:
        """Its arguments are whole."""
        self.item["arguments"] = arguments
        return [self._tell("mcp_call_arguments.done", arguments=arguments)]

    def finish(self, text: str, *, is_error: bool) -> list[Event]:
        """It was run."""
        status = "failed" if is_error else "completed"
        self.item |= {"error": tool_error(text)} if is_error else {"output": text}
        self.item["status"] = status
        return [self._tell(f"mcp_call.{status}"), self._ended()]

    def break_off(self) -> list[Event]:
        """It was not run, and may not even be whole."""
        self.item["arguments"] = self.item["arguments"] or "".join(self._pieces)
        return [self._tell("mcp_call.failed"), *super().break_off()]


class ListWriter(_Item):
    """The tools of a server, as the model sees them."""

    def __init__(self, index: int, server: str, tools: list[Item]) -> None:
        no_tools: list[Item] = []
        super().__init__(index, "mcpl", {"type": "mcp_list_tools", "server_label": server, "tools": no_tools})
        self._tools = tools

    def whole(self) -> list[Event]:
        """All that is told of it."""
        begun = [self._added(), self._tell("mcp_list_tools.in_progress")]
        self.item["tools"] = self._tools
        return [*begun, self._tell("mcp_list_tools.completed"), self._ended()]


def _input_of(arguments: str) -> str:
    """The input of a free-form tool; all that was written, where it is not to be told."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = cast("dict[str, Any]", value).get("input") if isinstance(value, dict) else None
    # JSON may spell half a character, which no stream can carry.
    return text.encode("utf-8", "replace").decode() if isinstance(text, str) else arguments
