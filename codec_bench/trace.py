"""Recorded conversations: turns the lines of a JSON Lines file into requests that are sent again.

A line is an object with `messages` (of OpenAI's API) or `prompt_tokens` (then a text of about that length is drawn),
`answer_tokens`, and `at`, the seconds after the start at which it was sent. Sans-IO; nothing in a line is an address,
and a line of another form is an error that names it.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from random import Random
from typing import Any, Final, cast

from codec_bench.workload import Conversation, Message, Turn, prompt_text

MOST_LINES: Final = 100_000
LONGEST_LINE: Final = 1 << 20
LARGEST: Final = 1 << 26
"""Bytes of all lines, wherever they come from."""
_ROLES: Final = frozenset({"system", "user", "assistant", "tool", "developer"})
_KEYS: Final = frozenset({"messages", "prompt_tokens", "answer_tokens", "at"})
_SHAPE: Final = '{"messages": [...] or "prompt_tokens": 200, "answer_tokens": 100, "at": 1.5}'


@dataclass(frozen=True, slots=True)
class Recorded:
    """The conversations of a trace, which starts over once all have been asked."""

    seed: int
    conversations: tuple[Conversation, ...]
    turns: int = 1

    @property
    def times(self) -> tuple[float, ...] | None:
        """When each was sent, in order; None if a line does not say."""
        told = [each.at for each in self.conversations if each.at is not None]
        return tuple(sorted(told)) if len(told) == len(self.conversations) else None

    def conversation(self, number: int) -> Conversation:
        """The conversation of the line whose turn it is."""
        line = self.conversations[number % len(self.conversations)]
        return Conversation(number, line.turns, line.at)

    def described(self) -> dict[str, Any]:
        """How much was recorded."""
        return {"seed": self.seed, "turns": self.turns, "trace_lines": len(self.conversations)}


def read_trace(lines: Iterable[bytes], seed: int, most_prompt: int, most_answer: int) -> Recorded:
    """Read the trace that these lines hold, in the order of `at` if all have it. Raises `ValueError`."""
    found: list[Conversation] = []
    read = 0
    for number, line in enumerate(lines, 1):
        if (read := read + len(line)) > LARGEST:
            raise ValueError(f"line {number}: a trace may have at most {LARGEST} bytes: shorten it")
        if not line.strip():
            continue
        if len(found) == MOST_LINES:
            raise ValueError(f"line {number}: a trace may have at most {MOST_LINES} lines: shorten it")
        try:
            found.append(_conversation(line, len(found), seed, most_prompt, most_answer))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}; expected {_SHAPE}") from None
    if not found:
        raise ValueError(f"it has no lines; expected lines of {_SHAPE}")
    if all(each.at is not None for each in found):
        found.sort(key=lambda each: each.at or 0.0)
    return Recorded(seed, tuple(found))


def _conversation(line: bytes, number: int, seed: int, most_prompt: int, most_answer: int) -> Conversation:
    if len(line) > LONGEST_LINE:
        raise ValueError(f"it is longer than {LONGEST_LINE} bytes")
    try:
        parsed: object = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    if not isinstance(parsed, dict):
        raise ValueError("it is not an object")
    fields = cast("dict[str, Any]", parsed)
    if unknown := sorted(fields.keys() - _KEYS):
        raise ValueError(f"{unknown[0][:40]!r} is not a known key")
    if ("messages" in fields) == ("prompt_tokens" in fields):
        raise ValueError("it needs either 'messages' or 'prompt_tokens'")
    answer = _count(fields, "answer_tokens", most_answer)
    messages = _messages(fields["messages"]) if "messages" in fields else _drawn(fields, number, seed, most_prompt)
    return Conversation(number, (Turn(messages, answer),), _time(fields.get("at")))


def _drawn(fields: dict[str, Any], number: int, seed: int, most: int) -> tuple[Message, ...]:
    random = Random(f"{seed}/{number}")  # noqa: S311 - nothing secret is drawn
    return ({"role": "user", "content": prompt_text(random, _count(fields, "prompt_tokens", most))},)


def _count(fields: dict[str, Any], key: str, most: int) -> int:
    value: object = fields.get(key)
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{key!r} is {value!r:.40}, not a number from 1 to {most}")
    return value


def _time(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise ValueError(f"'at' is {value!r:.40}, not a number of seconds")
    return float(value)


def _messages(value: object) -> tuple[Message, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("'messages' is not a list of messages")
    messages = cast("Sequence[object]", value)
    for message in messages:
        role: object = cast("dict[str, Any]", message).get("role") if isinstance(message, dict) else None
        if role not in _ROLES:
            raise ValueError(f"a message has the unknown role {role!r:.40}")
    return tuple(cast("Sequence[Message]", messages))
