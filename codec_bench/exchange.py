"""One conversation with one server: requests out, answers in, each request with the history so far.

Turns a conversation's turns into bodies of requests, and answers into the messages that precede the next request. With
tools a turn is two requests: a call that is forced, and the answer to its result. Sans-IO.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from codec_bench.answer import AnswerContent, AnswerFault
from codec_bench.server import Form
from codec_bench.workload import Conversation, Message

Api = Literal["chat", "completions"]
PATHS: Final[dict[Api, str]] = {"chat": "/chat/completions", "completions": "/completions"}

_MARKS: Final = ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten", "Eleven", "Twelve")
_TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "maxLength": 20}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}
_CALL_TOKENS: Final = 128
"""Enough for the call, however short the answer may be."""
_RESULT: Final = "It is a common word of the English language, and means what it meant before. It was found in 3 books."


@dataclass(frozen=True, slots=True)
class Asking:
    """How requests are made, the same for every server."""

    api: Api = "chat"
    stream: bool = True
    tools: bool = False
    ids: bool = False
    """Whether token ids are asked for."""
    apart: bool = False
    """Whether each server's prompts begin differently, so that none finds another's in a cache that they share."""
    seed: int = 0
    temperature: float = 0.0

    @property
    def requests_a_turn(self) -> int:
        """How many requests a turn takes."""
        return 2 if self.tools else 1


class Exchange:
    """One conversation with one server."""

    def __init__(
        self, conversation: Conversation, asking: Asking, model: str, server: int = 0, form: Form = "json"
    ) -> None:
        """`server`: number of the server in the run. `form`: the form in which answers are asked for."""
        self._turns = conversation.turns
        self._asking = asking
        self._model = model
        self._form = form
        self._history: list[Message] = []
        self._step = 0
        self._mark = f"{_MARKS[server % len(_MARKS)]}: " if asking.apart else ""
        self._skipped_ids = server if asking.apart else 0

    @property
    def steps(self) -> int:
        """Requests that the whole conversation takes."""
        return len(self._turns) * self._asking.requests_a_turn

    def next_body(self) -> dict[str, Any]:
        """The next request; call it once for each that is sent."""
        turn = self._turns[self._step // self._asking.requests_a_turn]
        if self._begins_turn and turn.messages:
            self._history += turn.messages if self._history else _marked(turn.messages, self._mark)
        fields: dict[str, Any] = {
            "model": self._model,
            **({"prompt": list(turn.ids[self._skipped_ids :])} if turn.ids else self._prompt()),
            "max_tokens": _CALL_TOKENS if self._asking.tools and self._begins_turn else turn.answer_tokens,
            "temperature": self._asking.temperature,
            "seed": self._asking.seed,
            "stream": self._asking.stream,
        }
        if self._asking.stream:
            fields["stream_options"] = {"include_usage": True}
        if self._form != "json":
            fields["stream_format"] = self._form
        if self._asking.ids:
            fields["return_token_ids"] = True
        return fields

    def take(self, content: AnswerContent) -> None:
        """Take the answer to the last request. Raises `AnswerFault` if a call was forced and none was made."""
        message: dict[str, Any] = {"role": "assistant", "content": content.text or None}
        if self._asking.tools and self._begins_turn:
            call = next((each for each in content.calls if each["name"]), None)
            if call is None or not _is_json(call["arguments"]):
                raise AnswerFault("no call", "it did not call the required tool with arguments in JSON")
            function = {"name": call["name"], "arguments": call["arguments"]}
            message["tool_calls"] = [{"id": call["id"] or "call_0", "type": "function", "function": function}]
            result = {"role": "tool", "tool_call_id": call["id"] or "call_0", "content": _RESULT}
            self._history += (message, result)
        else:
            self._history.append({**message, "content": content.text})
        self._step += 1

    @property
    def _begins_turn(self) -> bool:
        return self._step % self._asking.requests_a_turn == 0

    def _prompt(self) -> dict[str, Any]:
        if self._asking.api == "completions":
            return {"prompt": "\n".join(str(message.get("content") or "") for message in self._history)}
        if not self._asking.tools:
            return {"messages": list(self._history)}
        # There is only one tool, and not every server understands a choice by name.
        choice = "required" if self._begins_turn else "none"
        return {"messages": list(self._history), "tools": [_TOOL], "tool_choice": choice}


def _marked(messages: Sequence[Message], mark: str) -> Sequence[Message]:
    """The messages, with a mark in front of the first one's text."""
    first = messages[0]
    text = first.get("content")
    return ({**first, "content": mark + text}, *messages[1:]) if isinstance(text, str) else messages


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
