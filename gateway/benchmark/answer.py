"""The answer of a server, read with doubt: bytes of its body to what a client would have of it.

Reads `text/event-stream` as it comes, and `application/json` as a whole, of chat completions and of completions.
`feed` says how many pieces of the answer its bytes completed: texts that are not empty, ids, parts of a call. All is
foreign: what has another shape is a fault of a kind that can be counted. Sans-IO.
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
"""Why a request has no whole answer."""


class AnswerFault(Exception):
    """A request has no whole answer. `kind` is what is counted; the words are for a person, and may be the server's."""

    def __init__(self, kind: FaultKind, words: str, status: int = 0) -> None:
        super().__init__(words)
        self.kind: FaultKind = kind
        self.status = status

    @property
    def label(self) -> str:
        """The kind, with the status where that is what says it."""
        return f"{self.kind} {self.status}" if self.kind in ("http", "redirect") else self.kind


@dataclass(slots=True)
class Told:
    """What a server said in one answer."""

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

    def go_on(self, ids: Sequence[int]) -> None:
        """More ids of the answer. Raises `AnswerFault` where they are too many."""
        if len(self.ids) + len(ids) > _MOST_IDS:
            raise AnswerFault("too large", f"it sent more than {_MOST_IDS} ids")
        self.ids.extend(ids)

    def end(self, reason: str) -> None:
        """Why the answer ends."""
        self.finish = reason[:40]

    def count(self, prompt: int | None, cached: int | None, written: int | None) -> None:
        """What the server counted, as far as it says; what it said before stands."""
        self.prompt_tokens = self.prompt_tokens if prompt is None else prompt
        self.cached_tokens = self.cached_tokens if cached is None else cached
        self.completion_tokens = self.completion_tokens if written is None else written


class AnswerReader:
    """Reads one answer."""

    def __init__(self, content_type: str) -> None:
        """Raises `AnswerFault` where a body of this type is no answer."""
        kind = content_type.partition(";")[0].strip().lower()
        if kind not in ("text/event-stream", "application/json"):
            raise AnswerFault("not an answer", f"it answered {kind[:80] or 'without a type'!r}")
        self.told = Told()
        self._streamed = kind == "text/event-stream"
        self._rest = bytearray()
        self._done = False

    def feed(self, data: bytes) -> int:
        """Read on; gives how many pieces of the answer have come. Raises `AnswerFault`."""
        # Only what is new is looked at, however long a line is that comes in small pieces.
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
        """The body has ended; gives what came with its end. Raises `AnswerFault` where the answer is not whole."""
        if not self._streamed:
            return self._message(_object(bytes(self._rest)))
        came = self._line(bytes(self._rest))
        if not (self._done or self.told.finish):
            raise AnswerFault("broke off", "its stream ended without an end of the answer")
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
            raise AnswerFault("not an answer", f"a message of it is none of OpenAI's API ({error!r:.120})") from None

    def _choice(self, choice: Mapping[str, Any]) -> int:
        if isinstance(finish := choice.get("finish_reason"), str):
            self.told.end(finish)
        said = _table(choice, "delta") or _table(choice, "message") or choice
        texts = [said.get(key) for key in ("content", "reasoning_content", "text")]
        new = [text for text in texts if isinstance(text, str) and text]
        self.told.texts.extend(new)
        ids, calls = self._ids(choice.get("token_ids") or ()), self._calls(said.get("tool_calls") or ())
        return int(bool(new) or ids or calls)

    def _ids(self, ids: Sequence[Any]) -> bool:
        if any(type(each) is not int or not 0 <= each < _IDS for each in ids):
            raise ValueError("what should be an id is none")
        self.told.go_on(ids)
        return bool(ids)

    def _calls(self, calls: Any) -> bool:
        came = False
        for call in calls:
            place = call.get("index", len(self.told.calls))
            if type(place) is not int or not 0 <= place <= len(self.told.calls) or place >= _MOST_CALLS:
                raise ValueError("the index of a call")
            if place == len(self.told.calls):
                self.told.calls.append({"id": "", "name": "", "arguments": ""})
            function = _table(call, "function")
            parts = {"id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments")}
            for key, part in parts.items():
                if isinstance(part, str) and part:
                    self.told.calls[place][key] += part
                    came = came or key != "id"
        return came

    def _count(self, message: Mapping[str, Any]) -> None:
        """What the server says that it processed and found again."""
        usage, timings = _table(message, "usage"), _table(message, "timings")
        cached = _table(usage, "prompt_tokens_details").get("cached_tokens")
        written = _first(usage.get("completion_tokens"), timings.get("predicted_n"))
        self.told.count(_first(usage.get("prompt_tokens")), _first(cached, timings.get("cache_n")), written)


def _table(message: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """The object under a key; an empty one where there is none."""
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
        raise AnswerFault("not an answer", f"it sent what is no JSON object: {data[:80]!r}")
    return cast("Mapping[str, Any]", parsed)


def _said(error: object) -> str:
    words = _table({"error": error}, "error").get("message")
    return str(words or error)[:300]


def fault_of_status(status: int, body: bytes) -> AnswerFault:
    """What an HTTP status other than 200 stands for, with the server's own words."""
    if 300 <= status < 400:
        return AnswerFault(
            "redirect", f"it answered {status}, and redirects are not followed: name the address itself", status
        )
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    answer = cast("dict[str, object]", parsed) if isinstance(parsed, dict) else {}
    words = _said(answer.get("error", answer)) if answer else body[:200].decode("utf-8", "replace")
    return AnswerFault("http", f"it answered {status}: {words}", status)
