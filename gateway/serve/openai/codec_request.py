"""The body of `POST /v1/completions/codec`: msgpack or protobuf, to a completion request.

The content type decides how the body is read; any other type is refused. Shape and bounds are checked as for JSON. The
stream is in the body's own format unless the request names another. Pure. Source: Codec v0.5 (codec.md A.4, "Path B").
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import ValidationError

from gateway.errors import RequestInvalid
from gateway.serve.generation.fields import invalid
from gateway.serve.http.body import BodyUnread, media_type
from gateway.serve.http.msgpack_body import unpack
from gateway.serve.openai.completion_request import CompletionRequest

_NAMES: Final = {
    "application/x-msgpack": "msgpack",
    "application/msgpack": "msgpack",
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
}


def read_codec_request(content_type: str, body: bytes) -> CompletionRequest:
    """Read a body.

    Raises:
        BodyUnread: the content type is neither msgpack nor protobuf.
        RequestInvalid: the body can't be decoded, or a field is invalid; names the field.
    """
    form = _NAMES.get(media_type(content_type))
    if form is None:
        raise BodyUnread(
            f"Content-Type {content_type!r:.80} is not accepted here: send application/x-msgpack or "
            "application/x-protobuf, or send JSON to /v1/completions"
        )
    fields = _read_msgpack(body) if form == "msgpack" else _read_protobuf(body)
    if "prompt_ids" not in fields:
        raise RequestInvalid("prompt_ids: expected the prompt as ids", param="prompt_ids")
    known = {**fields, "prompt": fields["prompt_ids"]}
    try:
        return CompletionRequest.model_validate({"stream_format": form, "stream": True, **known})
    except ValidationError as error:
        raise invalid(error) from error


def _read_msgpack(body: bytes) -> Mapping[str, Any]:
    try:
        fields = unpack(body)
    except (ValueError, TypeError, RecursionError) as error:  # everything that msgpack raises
        raise RequestInvalid(f"the body is not valid msgpack: {error or type(error).__name__}") from error
    if not isinstance(fields, dict):
        raise RequestInvalid("the body must be a msgpack map with prompt_ids")
    return {str(key): value for key, value in cast("dict[object, Any]", fields).items()}


def _read_protobuf(body: bytes) -> Mapping[str, Any]:
    # Imported at the first such request: importing protobuf takes a tenth of a second, which would delay every start.
    from google.protobuf.message import DecodeError

    from leaf_sdk.wire.wide import WideRequest

    try:
        message = WideRequest.FromString(body)
    except DecodeError as error:
        raise RequestInvalid(f"the body is not a valid CodecRequest message: {error}") from error
    fields: dict[str, Any] = {"prompt_ids": list(message.prompt_ids), "stop": list(message.stop)}
    for name in ("max_tokens", "temperature", "stream_format"):
        if message.HasField(name):
            fields[name] = getattr(message, name)
    return fields
