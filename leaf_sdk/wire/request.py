"""The body of `POST /v1/completions/codec`, msgpack or protobuf, to a checked request.

One body holds one request, without a length before it. What a field means to an engine is not known here, and neither
is HTTP. Source: Codec v0.5; `codec.proto` has the message. A protobuf temperature of 0 is told from none
only where the client's schema gives the field presence, as ours does. Above: whoever serves completions.
"""

from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, cast

import msgpack

from leaf_sdk.errors import FormatUnavailable, FrameInvalid, FrameTooLarge

from .fields import FieldInvalid, Fields, FieldTooLarge, read_ids, refuse
from .frame import DEFAULT_LIMITS, MAX_ID, Limits

_NAME: Final = "the request"
_msgpack = cast("Any", msgpack)  # it has no types


@dataclass(frozen=True, slots=True)
class CodecRequest:
    """What is asked for; None where the client leaves it to the server."""

    prompt_ids: tuple[int, ...]
    max_tokens: int | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    stream_format: str | None = None


def read_request(
    body: bytes, encoding: Literal["msgpack", "protobuf"], limits: Limits = DEFAULT_LIMITS
) -> CodecRequest:
    """Read a body that has been decompressed already.

    Raises:
        FrameInvalid: no request, or a field of another type.
        FrameTooLarge: the body, a list or an id is over a limit.
        FormatUnavailable: protobuf is not installed.
    """
    if len(body) > limits.frame_bytes:
        raise FrameTooLarge(f"{_NAME} is {len(body)} bytes long, expected at most {limits.frame_bytes}", offset=0)
    try:
        fields = _from_msgpack(body, limits) if encoding == "msgpack" else _from_protobuf(body)
        return _checked(fields, limits)
    except FieldTooLarge as error:
        raise FrameTooLarge(f"{_NAME} is over a limit: {error}", offset=0) from error
    except FieldInvalid as error:
        raise FrameInvalid(f"{_NAME}: {error}", offset=0) from error


def _from_msgpack(body: bytes, limits: Limits) -> Fields:
    try:
        fields: object = _msgpack.unpackb(body, strict_map_key=False, max_array_len=limits.ids, max_map_len=1024)
    except (ValueError, TypeError, RecursionError) as error:
        if "exceeds max_" in str(error):
            raise FieldTooLarge(str(error)) from error
        _no_message(error)
    if not isinstance(fields, dict):
        refuse("the body", fields, "a map")
    return cast("Fields", fields)


def _from_protobuf(body: bytes) -> Fields:
    try:
        from google.protobuf.message import DecodeError

        from .wide import WideRequest
    except ImportError as error:
        raise FormatUnavailable("protobuf needs codec-leaf[wire]; send msgpack, or install it", offset=0) from error
    try:
        message = WideRequest.FromString(body)
    except DecodeError as error:
        _no_message(error)
    fields: dict[str, Any] = {"prompt_ids": list(message.prompt_ids), "stop": list(message.stop)}
    for name in ("max_tokens", "temperature", "stream_format"):
        if message.HasField(name):
            fields[name] = getattr(message, name)
    return fields


def _no_message(error: Exception) -> NoReturn:
    raise FieldInvalid(f"no message ({error}); check its Content-Type and Content-Encoding") from error


def _checked(fields: Fields, limits: Limits) -> CodecRequest:
    return CodecRequest(
        prompt_ids=read_ids(fields.get("prompt_ids"), "prompt_ids", limits),
        max_tokens=_count(fields),
        temperature=_temperature(fields),
        stop=_stop(fields, limits),
        stream_format=_text(fields),
    )


def _stop(fields: Fields, limits: Limits) -> tuple[str, ...]:
    value: object = fields.get("stop", [])
    if not isinstance(value, list):
        refuse("stop", value, "a list of texts")
    texts = cast("list[str]", value)
    if len(texts) > limits.parts:
        raise FieldTooLarge(f"stop holds {len(texts)} texts, expected at most {limits.parts}")
    if set(map(type, texts)) - {str}:
        refuse("stop", texts, "a list of texts")
    return tuple(texts)


def _text(fields: Fields) -> str | None:
    value: object = fields.get("stream_format")
    if value is not None and not isinstance(value, str):
        refuse("stream_format", value, "a text")
    return value


def _count(fields: Fields) -> int | None:
    value: object = fields.get("max_tokens")
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_ID):
        refuse("max_tokens", value, "a whole number that is not negative")
    return value


def _temperature(fields: Fields) -> float | None:
    value: object = fields.get("temperature")
    if value is None:
        return None
    # Not a number is no number from 0 on, and neither is infinity below the bound.
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= MAX_ID:
        refuse("temperature", value, "a number that is not negative")
    return float(value)
