"""A call to a bolt-on tool and its answer, from msgpack or JSON fields and back, in both dialects that are in use.

The tool kit sends the raw ids between the model's markers and gets ids, text or an error; the engines' dispatcher sends
the arguments' text and gets ids. A call remembers its dialect, and the answer is written in the same one. Knows nothing
of tokenizers or sockets. Source: Codec's tool-kit messages and engine dispatcher.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NoReturn, cast

import msgpack

from leaf_sdk.errors import CallInvalid

CALL_PATH: Final = "/codec/tool/v1/call"
"""The HTTP path at which a bolt-on takes calls."""
MANIFEST_PATH: Final = "/codec/tool/v1/manifest/"
"""The path at which it lists its tools; followed by a tool's name, the path of that tool's manifest."""
MEDIA_TYPE: Final = "application/x-msgpack"
MAX_CALL_BYTES: Final = 4 * 2**20
_MAX_ID: Final = 2**32

_msgpack = cast("Any", msgpack)  # it has no types

Dialect = Literal["tool-kit", "engine"]


@dataclass(frozen=True, slots=True)
class CodecToolCall:
    """One call. Either `argument_ids` or `arguments_json` holds what the model wrote."""

    name: str
    call_id: str | int
    argument_ids: tuple[int, ...] | None = None
    """The ids between the model's markers, not decoded by the sender."""
    model_id: str | None = None
    arguments_json: str | None = None
    """The arguments as text: always in the engines' dialect; in the tool kit's, where the tool has no ids for the
    caller's model (`x_arguments_json`, our own addition)."""
    tokenizer_hash: str | None = None
    dialect: Dialect = "tool-kit"

    def to_fields(self) -> dict[str, Any]:
        """Return the object to send, in the call's dialect."""
        if self.dialect == "engine":
            return {
                "tool_name": self.name,
                "arguments_json": self.arguments_json or "{}",
                "call_id": self.call_id,
                "tokenizer_hash": self.tokenizer_hash,
            }
        fields: dict[str, Any] = {"name": self.name, "callId": self.call_id}
        fields |= {"argumentIds": list(self.argument_ids or ()), "modelId": self.model_id or ""}
        return fields if self.arguments_json is None else {**fields, "x_arguments_json": self.arguments_json}

    def to_bytes(self) -> bytes:
        """Return the msgpack body."""
        return _packed(self.to_fields())

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "CodecToolCall":
        """Read either dialect. Raises `CallInvalid`: a field is missing or of another type; the message names it."""
        if "tool_name" in fields:
            return cls(
                name=_text(fields, "tool_name"),
                call_id=_call_id(fields, "call_id"),
                arguments_json=_text(fields, "arguments_json"),
                tokenizer_hash=_text(fields, "tokenizer_hash"),
                dialect="engine",
            )
        in_text = "x_arguments_json" in fields
        return cls(
            name=_text(fields, "name"),
            call_id=_call_id(fields, "callId"),
            argument_ids=None if in_text else _ids(fields, "argumentIds"),
            model_id=_text(fields, "modelId"),
            arguments_json=_text(fields, "x_arguments_json") if in_text else None,
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "CodecToolCall":
        """Read a msgpack body of at most `MAX_CALL_BYTES`.

        Raises:
            CallInvalid: too large, not msgpack, or not a call.
        """
        return cls.from_fields(_unpack(data, "call"))


@dataclass(frozen=True, slots=True)
class CodecToolResult:
    """The answer to one call: either ids, a text or an error. Make it with `tokens`, `said` or `failed`."""

    call_id: str | int
    kind: Literal["tokens", "text", "error"]
    response_ids: tuple[int, ...] = ()
    text: str = ""
    message: str = ""
    code: str | None = None

    @classmethod
    def tokens(cls, call_id: str | int, response_ids: tuple[int, ...]) -> "CodecToolResult":
        """Answer with ids of the map that the call named."""
        return cls(call_id, "tokens", response_ids=response_ids)

    @classmethod
    def said(cls, call_id: str | int, text: str) -> "CodecToolResult":
        """Answer with a text, which the caller tokenizes."""
        return cls(call_id, "text", text=text)

    @classmethod
    def failed(cls, call_id: str | int, message: str, code: str | None = None) -> "CodecToolResult":
        """Answer that the call failed; `code` is a short word such as E_BAD_ARG."""
        return cls(call_id, "error", message=message, code=code)

    def to_fields(self, dialect: Dialect = "tool-kit") -> dict[str, Any]:
        """Return the object to send.

        Raises:
            CallInvalid: a text in the engines' dialect, which has no field for one.
        """
        if dialect == "engine":
            return self._engine_fields()
        head: dict[str, Any] = {"callId": self.call_id, "kind": self.kind}
        match self.kind:
            case "tokens":
                return {**head, "responseIds": list(self.response_ids)}
            case "text":
                return {**head, "text": self.text}
            case "error":
                return {**head, "message": self.message} | ({} if self.code is None else {"code": self.code})

    def to_bytes(self, dialect: Dialect = "tool-kit") -> bytes:
        """Return the msgpack body."""
        return _packed(self.to_fields(dialect))

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "CodecToolResult":
        """Read either dialect. Raises `CallInvalid`: a field is missing or of another type; the message names it."""
        if "response_ids" in fields or "is_error" in fields:
            call_id = _call_id(fields, "call_id")
            if fields.get("is_error") is True:
                return cls.failed(call_id, str(fields.get("error_message") or "the tool failed"))
            return cls.tokens(call_id, _ids(fields, "response_ids"))
        call_id = _call_id(fields, "callId")
        match fields.get("kind"):
            case "tokens":
                return cls.tokens(call_id, _ids(fields, "responseIds"))
            case "text":
                return cls.said(call_id, _text(fields, "text"))
            case "error":
                code = fields.get("code")
                return cls.failed(call_id, _text(fields, "message"), code if isinstance(code, str) else None)
            case kind:
                raise CallInvalid(f"found kind {kind!r:.60}, expected tokens, text or error")

    @classmethod
    def from_bytes(cls, data: bytes) -> "CodecToolResult":
        """Read a msgpack body of at most `MAX_CALL_BYTES`.

        Raises:
            CallInvalid: too large, not msgpack, or not an answer.
        """
        return cls.from_fields(_unpack(data, "answer"))

    def _engine_fields(self) -> dict[str, Any]:
        if self.kind == "text":
            _refuse("a text as the answer to an engine's dispatcher", "ids: its messages have no field for a text")
        failed = self.kind == "error"
        return {
            "response_ids": list(self.response_ids),
            "call_id": self.call_id,
            "is_error": failed,
            "error_message": self.message if failed else None,
        }


def _packed(fields: Mapping[str, Any]) -> bytes:
    return cast("bytes", _msgpack.packb(fields))


def _unpack(data: bytes, what: str) -> Mapping[str, Any]:
    if len(data) > MAX_CALL_BYTES:
        _refuse(f"a tool {what} of {len(data)} bytes", f"at most {MAX_CALL_BYTES}")
    try:
        fields = cast("object", _msgpack.unpackb(data))
    except (ValueError, RecursionError) as error:
        raise CallInvalid(f"a tool {what} that is not msgpack ({error}), expected one msgpack map") from error
    if not isinstance(fields, dict):
        _refuse(f"a tool {what} of type {type(fields).__name__}", "a map")
    return cast("Mapping[str, Any]", fields)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    if not isinstance(value, str):
        _refuse(f"{key} {value!r:.60}", "a string")
    return value


def _call_id(fields: Mapping[str, Any], key: str) -> str | int:
    value = fields.get(key)
    if not isinstance(value, str) and type(value) is not int:
        _refuse(f"{key} {value!r:.60}", "a string or a whole number")
    return value


def _ids(fields: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value: object = fields.get(key)
    if not isinstance(value, list):
        _refuse(f"{key} {value!r:.60}", "a list of ids")
    ids = cast("list[int]", value)
    if set(map(type, ids)) - {int} or (ids and not 0 <= min(ids) <= max(ids) < _MAX_ID):
        _refuse(f"{key} with something that is not an id", "whole numbers from 0 to 2^32 - 1")
    return tuple(ids)


def _refuse(found: str, expected: str) -> NoReturn:
    raise CallInvalid(f"found {found}, expected {expected}")
