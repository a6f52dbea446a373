"""A line that a strict JSON parser refuses, read as far as possible.

Turns such a line into JSON text without the two things that a tolerant writer lets through: half a surrogate pair
(`"\\ud800"`, which JavaScript writes for a string cut in the middle of a character) and bytes that are not UTF-8. Both
become U+FFFD, as they do wherever text is shown. A line that is not JSON (cut short, nested too deeply) counts as
an answer if its ends look like one, so that nobody waits for another. Of JSON-RPC it knows only the id of an answer.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.protocol.lines import EDGE, LongLine
from gateway.protocol.messages import Malformed, Message, parse_message

_HALF: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Mended:
    """A JSON object that was read tolerantly."""

    text: str
    """The object as JSON, with whole characters only."""
    answers: int | None
    """The id of the request that it answers; None if it is not an answer."""


@dataclass(frozen=True, slots=True)
class BrokenAnswer:
    """The answer to our request `id`, and why nobody can use it."""

    id: int
    detail: str


def mend_message(data: bytes, refused: Malformed) -> Message | BrokenAnswer | Malformed:
    """Read a message that `parse_message` refused with `refused`, as far as possible.

    `Malformed` means that it is not an answer to us; if it has an id, its sender waits for an answer.
    """
    mended = mend_line(data)
    if mended is None:
        number = _seen_id(data)
        return refused if number is None else BrokenAnswer(number, _broken(refused.detail))
    again = parse_message(mended.text.encode())
    if not isinstance(again, Malformed):
        return again
    if mended.answers is None:
        return again
    return BrokenAnswer(mended.answers, _broken(again.detail))


def mend_value(value: dict[str, Any]) -> Message | BrokenAnswer | Malformed:
    """The message in an object that was read tolerantly."""
    data = _whole(value).encode()
    message = parse_message(data)
    return mend_message(data, message) if isinstance(message, Malformed) else message


def _broken(detail: str) -> str:
    return f"its answer is not a JSON-RPC response: {detail}"


def mend_line(data: bytes) -> Mended | None:
    """The object in a line; None if the line is not a JSON object even to a tolerant reader."""
    try:
        value: object = json.loads(data.decode("utf-8", "replace"))
        text = _whole(value)
    except (ValueError, RecursionError):
        return None
    return Mended(text, _answered_id(cast("dict[str, Any]", value))) if isinstance(value, dict) else None


def _whole(value: object) -> str:
    """The value as JSON with whole characters only."""
    return _HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False))


def _seen_id(data: bytes) -> int | None:
    """The id of the request that a line answers although it is not JSON, if its ends show one."""
    ends = LongLine(data[:EDGE], data[-EDGE:], len(data))
    return ends.answered_id() if b'"jsonrpc"' in ends.head or b'"jsonrpc"' in ends.tail else None


def _answered_id(message: dict[str, Any]) -> int | None:
    """The id of our request that a message answers. Our ids are integers; a message with a method is not an answer."""
    found: object = message.get("id")
    return found if type(found) is int and "method" not in message else None
