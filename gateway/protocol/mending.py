"""Lines and batches of JSON-RPC, read as far as possible where a strict parser refuses them."""

import json
import re
from dataclasses import dataclass
from typing import Any, Final, cast

from gateway.protocol.lines import EDGE, LongLine
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    Failure,
    Malformed,
    Request,
    Response,
    RpcMessage,
    parse_message,
)

# What a tolerant writer lets through: half a surrogate pair (`"\ud800"`, which JavaScript writes for a string cut in
# the middle of a character) and bytes that are not UTF-8 become U+FFFD; a byte order mark and words before the message
# are dropped; an answer may lack `jsonrpc`, repeat its id in another form (`"1"`, `1.0`), and hold an empty `error` or
# a null `method` beside its result. A line that is not JSON (cut short, nested too deeply) counts as an answer if its
# ends look like one, so that nobody waits for another.

_HALF: Final = re.compile("[\ud800-\udfff]")
_NUMBER: Final = re.compile("0{0,9}[0-9]{1,18}", re.ASCII)
_BEGINNING: Final = re.compile(rb'\{\s*"(?:jsonrpc|id|result|error|method)"\s*:')
_WORDS: Final = 4096
"""Bytes before a message on the same line that are dropped, at most."""
_ASKED: Final = ("ping", "sampling/createMessage", "elicitation/create", "roots/list")


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


def mend_message(data: bytes, refused: Malformed, *, after_words: bool = True) -> RpcMessage | BrokenAnswer | Malformed:
    """Read a message that `parse_message` refused with `refused`, as far as possible.

    `Malformed` means that it is not an answer to us; if it has an id, its sender waits for an answer.
    """
    mended = mend_line(data)
    if mended is None and after_words and (begins := _BEGINNING.search(data, 1, _WORDS)) is not None:
        mended = (
            mend_line(data[begins.start() :]) if b'"jsonrpc"' in data[-EDGE:] or b'"jsonrpc"' in data[:EDGE] else None
        )
    if mended is None:
        number = _seen_id(data)
        return refused if number is None else BrokenAnswer(number, _broken(refused.detail))
    again = parse_message(mended.text.encode())
    if not isinstance(again, Malformed):
        return again
    if mended.answers is None:
        return again
    return BrokenAnswer(mended.answers, _broken(again.detail))


def mend_value(value: dict[str, Any]) -> RpcMessage | BrokenAnswer | Malformed:
    """The message in an object that was read tolerantly."""
    data = _whole(_enveloped(value)).encode()
    message = parse_message(data)
    return mend_message(data, message) if isinstance(message, Malformed) else message


def _broken(detail: str) -> str:
    return f"its answer is not a JSON-RPC response: {detail}"


def mend_line(data: bytes) -> Mended | None:
    """The object in a line; None if the line is not a JSON object even to a tolerant reader."""
    try:
        value: object = json.loads(data.decode("utf-8", "replace").lstrip("\ufeff"))
        text = _whole(_enveloped(cast("dict[str, Any]", value)) if isinstance(value, dict) else value)
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


def number_of(found: object) -> int | None:
    """The number that an id stands for: our ids are integers, and some servers repeat `1` as `"1"`, `"01"` or `1.0`."""
    if isinstance(found, float) and found.is_integer():
        return int(found)
    if isinstance(found, str) and _NUMBER.fullmatch(found):
        return int(found)
    return found if type(found) is int else None


def _enveloped(message: dict[str, Any]) -> dict[str, Any]:
    """The message with the fields around its content as JSON-RPC wants them, if it is clear what it is."""
    method = message.get("method")
    if isinstance(method, str):
        # Of what programs print, much has a `method`.
        is_ours = method in _ASKED if "id" in message else method.startswith("notifications/")
        return {**message, "jsonrpc": "2.0"} if is_ours else message
    if method is not None or ("result" not in message and "error" not in message):
        return message
    answer = {key: value for key, value in message.items() if key != "method"}
    error: object = answer.get("error")
    if not error and "result" in answer:
        answer.pop("error", None)
    elif isinstance(error, str):
        answer["error"] = {"code": INTERNAL_ERROR, "message": error}
    if (number := number_of(answer.get("id"))) is not None:
        answer["id"] = number
    return {**answer, "jsonrpc": "2.0"}


def _answered_id(message: dict[str, Any]) -> int | None:
    """The id of our request that a message answers. Our ids are integers; a message with a method is not an answer."""
    found: object = message.get("id")
    if type(found) is not int and "result" not in message and "error" not in message:
        return None
    return number_of(found) if message.get("method") is None else None


# Only version 2025-03-26 of MCP has batches. In any other, each message of a server's batch is refused: an answer
# becomes one that can't be used, so that nobody waits for another. A batch from a client is only split.

VERSIONS: Final = frozenset({"2025-03-26"})
MOST: Final = 1024
"""Most messages of a batch: nothing else runs while they are read. No request of ours asks for more answers."""
_NOT_HERE: Final = "a JSON-RPC batch, which MCP {version} does not have: send one message at a time"
_TOO_EARLY: Final = "a JSON-RPC batch before a version of MCP was agreed: send one message at a time"


def read_batch(data: bytes, version: str) -> list[RpcMessage | BrokenAnswer | Malformed]:
    """The messages of a batch; empty if the data is not a batch. `version`: the agreed version of the protocol; empty:
    none was agreed yet."""
    messages = [mend_value(part) for part in _parts(data)]
    if version in VERSIONS:
        return messages
    why = _NOT_HERE.format(version=version) if version else _TOO_EARLY
    return [_refused(message, why) for message in messages]


def split_batch(data: bytes) -> list[bytes]:
    """The messages of a batch as JSON, regardless of the version; empty if the data is not a batch."""
    return [json.dumps(part).encode() for part in _parts(data)]


def _parts(data: bytes) -> list[dict[str, Any]]:
    if data.lstrip()[:1] != b"[":
        return []
    try:
        parts: list[object] = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    return [cast("dict[str, Any]", part) for part in parts if isinstance(part, dict)] if len(parts) <= MOST else []


def _refused(message: RpcMessage | BrokenAnswer | Malformed, why: str) -> BrokenAnswer | Malformed:
    if isinstance(message, Response | Failure | BrokenAnswer) and type(message.id) is int:
        return BrokenAnswer(message.id, f"its answer came in {why}")
    asked = message.id if isinstance(message, Request | Malformed) else None
    return Malformed(INVALID_REQUEST, f"the message came in {why}", asked)
