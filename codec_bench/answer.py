"""Reads a server's answer without trusting it: from the bytes of its body to what a client would get from it.

Reads `text/event-stream` as it arrives, and `application/json` as a whole, for chat completions and completions. `feed`
returns how many pieces of the answer its bytes completed: texts that are not empty, ids, parts of a call. Whatever has
another shape is a fault, of a kind that can be counted. Sans-IO.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

from pydantic_core import from_json

_LONGEST_EVENT: Final = 1 << 20
_MOST_IDS: Final = 1 << 17
_MOST_CALLS: Final = 64
_IDS: Final = 1 << 32
"""No vocabulary has more."""
_MOST_COUNTED: Final = 1 << 31

FaultKind = Literal[
    "redirect",
    "http",
    "told an error",
    "not an answer",
    "broke off",
    "no call",
    "timeout",
    "no connection",
    "too large",
    "not sent",
]
"""Why a request got no complete answer."""


class AnswerFault(Exception):
    """A request got no complete answer. `kind` is what is counted; `words` are for people, and may be the server's."""

    def __init__(self, kind: FaultKind, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.kind: FaultKind = kind
        self.status = status

    @property
    def label(self) -> str:
        """The kind, with the HTTP status if that is the reason."""
        return f"{self.kind} {self.status}" if self.kind in ("http", "redirect") else self.kind


@dataclass(slots=True)
class AnswerContent:
    """The content of one answer."""

    texts: list[str] = field(default_factory=list[str])
    ids: list[int] = field(default_factory=list[int])
    calls: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """Calls of a tool: `id`, `name` and `arguments`."""
    finish: str = ""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(self.texts)

    def add_ids(self, ids: Sequence[int]) -> None:
        """Add ids to the answer. Raises `AnswerFault` if they are too many."""
        if len(self.ids) + len(ids) > _MOST_IDS:
            raise AnswerFault("too large", f"it sent more than {_MOST_IDS} ids")
        self.ids.extend(ids)

    def end(self, reason: str) -> None:
        """Note why the answer ended."""
        self.finish = reason[:40]

    def count(self, prompt: int | None, cached: int | None, written: int | None) -> None:
        """Note what the server counted. None leaves what it said before."""
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        self.cached_tokens = self.cached_tokens if cached is None else cached
        self.completion_tokens = self.completion_tokens if written is None else written


class AnswerReader:
    """Reads one answer."""

    def __init__(self, content_type: str) -> None:
        """Raises `AnswerFault` if a body of this type can't be an answer."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind not in ("text/event-stream", "application/json"):
            words = f"with the content type {kind[:80]!r}" if kind else "without a content type"
            raise AnswerFault("not an answer", f"it answered {words}")
        self.content = AnswerContent()
        self._streamed = kind == "text/event-stream"
        self._rest = bytearray()
        self._done = False

    def feed(self, data: bytes) -> int:
        """Read more bytes; returns how many pieces of the answer they completed. Raises `AnswerFault`."""
        # Only the new bytes are searched, however long a line is that arrives in small pieces.
        seen = len(self._rest)
        self._rest += data
        if not self._streamed:
            return 0
        if (end := self._rest.rfind(b"\n", seen)) < 0:
            if len(self._rest) > _LONGEST_EVENT:
                raise AnswerFault("too large", f"it sent an event of more than {_LONGEST_EVENT} bytes")
            return 0
        lines = bytes(self._rest[:end]).split(b"\n")
        del self._rest[: end + 1]
        return sum(self._line(line) for line in lines)

    def close(self) -> int:
        """End the body; returns how many pieces that completed. Raises `AnswerFault` if the answer is incomplete."""
        if not self._streamed:
            return self._message(_object(bytes(self._rest)))
        came = self._line(bytes(self._rest))
        if not (self._done or self.content.finish):
            raise AnswerFault("broke off", "its stream ended before the answer did")
        return came

    def _line(self, line: bytes) -> int:
        name, _, data = line.partition(b":")
        if name not in (b"data", b"error") or not (data := data.strip()):
            return 0
        if data == b"[DONE]":
            self._done = True
            return 0
        return self._message(_object(data))

    def _message(self, message: Mapping[str, Any]) -> int:
        if (error := message.get("error")) is not None:
            raise AnswerFault("told an error", _said(error))
        try:
            self._count(message)
            choices: object = message.get("choices")
            if not isinstance(choices, list):
                raise TypeError("no choices")
            return sum(self._choice(cast("Mapping[str, Any]", choice)) for choice in cast("list[object]", choices)[:1])
        except (TypeError, AttributeError, ValueError) as error:
            raise AnswerFault(
                "not an answer", f"it sent a message that is not in OpenAI's format ({error!r:.120})"
            ) from None

    def _choice(self, choice: Mapping[str, Any]) -> int:
        if isinstance(finish := choice.get("finish_reason"), str):
            self.content.end(finish)
        said = _table(choice, "delta") or _table(choice, "message") or choice
        texts = [said.get(key) for key in ("content", "reasoning_content", "text")]
        new = [text for text in texts if isinstance(text, str) and text]
        self.content.texts.extend(new)
        ids, calls = self._ids(choice.get("token_ids") or ()), self._calls(said.get("tool_calls") or ())
        return int(bool(new) or ids or calls)

    def _ids(self, ids: Sequence[Any]) -> bool:
        if any(type(each) is not int or not 0 <= each < _IDS for each in ids):
            raise ValueError("an entry of token_ids is not an id")
        self.content.add_ids(ids)
        return bool(ids)

    def _calls(self, calls: Any) -> bool:
        came = False
        for call in calls:
            place = call.get("index", len(self.content.calls))
            if type(place) is not int or not 0 <= place <= len(self.content.calls) or place >= _MOST_CALLS:
                raise ValueError("the index of a call is out of order")
            if place == len(self.content.calls):
                self.content.calls.append({"id": "", "name": "", "arguments": ""})
            function = _table(call, "function")
            parts = {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
            for key, part in parts.items():
                if isinstance(part, str) and part:
                    self.content.calls[place][key] += part
                    came = came or key != "id"
        return came

    def _count(self, message: Mapping[str, Any]) -> None:
        """Note what the server says that it processed and found in its cache."""
        usage, timings = _table(message, "usage"), _table(message, "timings")
        cached = _table(usage, "prompt_tokens_details").get("cached_tokens")
        written = _first(usage.get("completion_tokens"), timings.get("predicted_n"))
        self.content.count(_first(usage.get("prompt_tokens")), _first(cached, timings.get("cache_n")), written)


def _table(message: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key; an empty one if there is none."""
    value: object = message.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _first(*counts: object) -> int | None:
    """The first that is a number of tokens."""
    return next((each for each in counts if type(each) is int and 0 <= each < _MOST_COUNTED), None)


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        parsed: object = from_json(data)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise AnswerFault("not an answer", f"it sent something that is not a JSON object: {data[:80]!r}")
    return cast("Mapping[str, Any]", parsed)


def _said(error: object) -> str:
    words = _table({"error": error}, "error").get("message")
    return str(words or error)[:300]


def fault_of_status(status: int, body: bytes) -> AnswerFault:
    """The fault that an HTTP status other than 200 stands for, with the server's own words."""
    if 300 <= status < 400:
        return AnswerFault(
            "redirect",
            f"it answered {status}, and redirects are not followed: give the address that it redirects to",
            status,
        )
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    answer = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    words = _said(answer.get("error", answer)) if answer else _told(body)
    return AnswerFault("http", f"it answered {status}{words and f': {words}'}", status)


def _told(body: bytes) -> str:
    """A body that is not JSON, unless it is markup: a page is meant for browsers."""
    text = body[:200].decode("utf-8", "replace").strip()
    return "a web page, as another program's server gives it" if text.startswith("<") else text
