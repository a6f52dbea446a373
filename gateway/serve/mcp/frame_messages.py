"""MCP's JSON-RPC messages in Codec's frames, and how a client asks for frames.

A frame is a length (4 bytes, big-endian) and a body: msgpack, or a protobuf envelope whose only field (1, bytes) holds
that msgpack. A request's body is the same without the length. Pure: bytes and values. Source: Codec v0.5's MCP gateway
(codec.md F).
"""

import json
from collections.abc import Mapping
from typing import Any, Final, Literal, cast
from urllib.parse import parse_qsl

import msgpack

from gateway.errors import RequestInvalid
from gateway.serve.http.body import media_type
from gateway.serve.http.msgpack_body import unpack

Form = Literal["msgpack", "protobuf"]
MEDIA_TYPES: Final[dict[Form, str]] = {
    "msgpack": "application/x-codec-msgpack",
    "protobuf": "application/x-codec-protobuf",
}
_FORMS: Final[dict[str, Form]] = {"msgpack": "msgpack", "protobuf": "protobuf"}
_FIELD: Final = 0x0A
_FIELDS: Final = 100
_LONGEST_NUMBER: Final = 300
"""Most characters of an integer that is kept as a number: a float can approximate it."""
_library = cast("Any", msgpack)


def wanted_form(query: str, accept: str) -> Form | None:
    """The form of the answer: the one in the query, which may also say `json` (no frames); else the one in `Accept`."""
    try:
        asked = {name: value.lower() for name, value in parse_qsl(query, max_num_fields=_FIELDS)}
    except ValueError:
        # A query with so many fields is not meant for us.
        asked = {}
    word = asked.get("stream_format", asked.get("streamFormat", ""))
    if word == "json":
        return None
    if word in _FORMS:
        return _FORMS[word]
    return next((form for form, name in MEDIA_TYPES.items() if name in accept.lower()), None)


def sent_form(content_type: str) -> Form | None:
    """The form of a request's body; None: it is not framed."""
    named = media_type(content_type)
    return next((form for form, name in MEDIA_TYPES.items() if name == named), None)


def write_frame(form: Form, message: object) -> bytes:
    """Give one message's frame. Integers over 64 bits, which msgpack lacks, are approximated by floats."""
    body = cast("bytes", _library.packb(message, default=float, unicode_errors="replace"))
    if form == "protobuf":
        body = bytes([_FIELD]) + _varint(len(body)) + body
    return len(body).to_bytes(4, "big") + body


def read_json(data: bytes) -> object:
    """Read JSON that is to be framed. An integer that no number of msgpack can approximate becomes a text."""
    return json.loads(data, parse_int=lambda digits: int(digits) if len(digits) <= _LONGEST_NUMBER else digits)


def read_messages(form: Form, body: bytes) -> Mapping[str, Any] | list[Any]:
    """Read a request's body: one message, or a batch.

    Raises:
        RequestInvalid: it can't be decoded, or is neither of these.
    """
    if form == "protobuf":
        body = _unwrapped(body)
    try:
        message = unpack(body)
        json.dumps(message)  # fails on values that JSON lacks, such as bytes: they must not get further
    except (ValueError, TypeError, RecursionError) as error:  # msgpack's own errors, all of them
        raise RequestInvalid(
            f"the body is not a JSON-RPC message in msgpack: {error or type(error).__name__}"
        ) from error
    if not isinstance(message, dict | list):
        raise RequestInvalid("the body must hold a JSON-RPC object or a batch of them")
    return cast("Mapping[str, Any] | list[Any]", message)


class EventReader:
    """Turns server-sent events, in pieces of any size, into the data of each; skips comments, ids and names."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Give the data of the events that these bytes complete."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        return [joined for event in events if (joined := _data_of(event))]


def _data_of(event: bytes) -> bytes:
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _unwrapped(body: bytes) -> bytes:
    """The bytes of field 1. There may be no other field."""
    size = at = 0
    for at in range(1, min(len(body), 6)):
        size |= (body[at] & 0x7F) << 7 * (at - 1)
        if body[at] < 0x80:
            break
    inner = body[at + 1 :]
    if not body or body[0] != _FIELD or body[at] >= 0x80 or len(inner) != size:
        raise RequestInvalid("the body is not a protobuf envelope: expected field 1 with the message's msgpack, alone")
    return inner
