"""Bytes into JSON-RPC 2.0 messages, and back.

`parse_message` returns one of four kinds of message, or `Malformed` with the error to send back; the `encode_*`
functions return compact JSON without a line end. Params, results and errors stay the dicts that were read: no field is
added, dropped or converted, and integers keep all their digits. Three things are refused because no answer could carry
them back: half a surrogate pair, nesting deeper than about 200 levels, and numbers that JSON does not have (`NaN`,
`Infinity`, or so large that they become infinite). It knows no method.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from pydantic_core import from_json, to_json

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022

RequestId = int | str

_NO_NUMBER: Final = ": NaN and Infinity are not JSON numbers; send null or a string"


# Messages are never changed. The two that every call creates are not frozen: creating a frozen one takes up to three
# times as long.
@dataclass(slots=True)
class Request:
    """A message whose sender waits for an answer. `params` is empty if there were none."""

    id: RequestId
    method: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Notification:
    """A message whose sender does not wait for an answer."""

    method: str
    params: dict[str, Any]


@dataclass(slots=True)
class Response:
    """The answer to the request `id`."""

    id: RequestId
    result: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """The error for the request `id`: `code`, `message`, maybe `data`, and whatever else its sender added.

    It is unchanged, unless its code was not an integer or its message not a string.
    """

    id: RequestId | None
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Malformed:
    """Not a valid message: the error code and text to send back, and the request's id if one could be read."""

    code: int
    detail: str
    id: RequestId | None = None


class Unwritable(ValueError):
    """A message holds a number that JSON does not have."""


RpcMessage = Request | Notification | Response | Failure


def parse_message(data: bytes) -> RpcMessage | Malformed:
    """A message (JSON-RPC 2.0, sections 4 and 5; MCP: no batches, ids are strings or integers, params are objects)."""
    try:
        value: object = from_json(data, allow_inf_nan=False)
    except ValueError as error:
        deep = "recursion limit" in str(error)
        why = _NO_NUMBER if _has_no_number(data) else ""
        return Malformed(PARSE_ERROR, "the message is nested too deeply" if deep else f"the message is not JSON{why}")
    return read_message(value)


def read_message(value: object) -> RpcMessage | Malformed:
    """Like `parse_message`, from JSON that was parsed already."""
    if not isinstance(value, dict):
        what = "a batch; send one message at a time" if isinstance(value, list) else "not a JSON object"
        return Malformed(INVALID_REQUEST, f"the message is {what}")
    fields: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType]
    message_id: object = fields.get("id")
    known = message_id if isinstance(message_id, int | str) and not isinstance(message_id, bool) else None
    if fields.get("jsonrpc") != "2.0":
        return Malformed(INVALID_REQUEST, 'the message is not JSON-RPC 2.0: expected "jsonrpc": "2.0"', known)
    if "method" in fields:
        return _read_call(fields, known)
    if "error" in fields:
        error: object = fields["error"]
        if error == {} and "result" in fields:
            return Malformed(INVALID_REQUEST, "the response has a result and an error", known)
        if isinstance(error, dict) and (known is not None or message_id is None):
            return Failure(known, _sound(cast("dict[str, Any]", error)))
        return Malformed(INVALID_REQUEST, "the error response has no error object or an invalid id", known)
    if isinstance(fields.get("result"), dict) and known is not None:
        return Response(known, fields["result"])
    return Malformed(INVALID_REQUEST, "the message has no method, no result object and no error", known)


def is_json(data: bytes) -> bool:
    """Whether it is a whole JSON value."""
    try:
        from_json(data)
    except ValueError:
        return False
    return True


def _sound(error: dict[str, Any]) -> dict[str, Any]:
    """The error itself; if its code is not an integer or its message not a string, one that every reader accepts."""
    code, message = error.get("code"), error.get("message")
    if type(code) is int and isinstance(message, str):
        return error
    if not isinstance(message, str):
        message = "no reason was given" if message is None else to_json(message).decode()
    return {**error, "code": code if type(code) is int else INTERNAL_ERROR, "message": message}


def _read_call(fields: dict[str, Any], known: RequestId | None) -> Request | Notification | Malformed:
    method: object = fields["method"]
    params: object = fields.get("params")
    if not isinstance(method, str):
        return Malformed(INVALID_REQUEST, "the method must be a string", known)
    if params is None:
        params = {}
    if not isinstance(params, dict):
        return Malformed(INVALID_REQUEST, "the params must be an object", known)
    named: dict[str, Any] = params  # pyright: ignore[reportUnknownVariableType]
    if "id" not in fields:
        return Notification(method, named)
    if known is None:
        return Malformed(INVALID_REQUEST, "the id must be a string or an integer")
    return Request(known, method, named)


def _has_no_number(data: bytes) -> bool:
    """Whether `NaN` or `Infinity` is the only reason why the data is not JSON."""
    if not names_no_number(data):
        return False
    try:
        from_json(data)
    except ValueError:
        return False
    return True


def names_no_number(data: bytes) -> bool:
    """Whether the data contains `NaN` or `Infinity`, if only in a string."""
    # Neither with `in`, which tries its left side as a number first, and so raises and drops an error internally, nor
    # with `find`, which takes its arguments from a tuple.
    return bool(data.partition(b"NaN")[1] or data.partition(b"Infinity")[1])


def _written(message: dict[str, Any]) -> bytes:
    data = to_json(message)
    # The search costs next to nothing; only data that may be invalid is parsed again.
    if names_no_number(data):
        try:
            from_json(data, allow_inf_nan=False)
        except ValueError:
            raise Unwritable(f"the message to be sent is not JSON{_NO_NUMBER}") from None
    return data


def encode_request(request_id: RequestId, method: str, params: Mapping[str, Any] | None) -> bytes:
    """A request as JSON; without params, the field is left out. Raises `ValueError`: the params hold half a surrogate
    pair or a number that JSON does not have, or are nested too deeply."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method}
    if params:
        body["params"] = params
    return _written(body)


def encode_notification(method: str, params: Mapping[str, Any] | None) -> bytes:
    """A notification as JSON; without params, the field is left out. Raises like `encode_request`."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "method": method}
    if params:
        body["params"] = params
    return _written(body)


class LastingResult(dict[str, Any]):
    """A result that is encoded only once, because it answers many requests, or never, because it came as JSON.

    It must not be changed: whoever adds something makes another dict of it.
    """

    __slots__ = ("_json",)

    _json: bytes

    @classmethod
    def of(cls, result: Mapping[str, Any], json: bytes = b"") -> Self:
        """The result, not encoded yet. `json`: it as JSON, where that is known."""
        # Without an `__init__`, which would double the time.
        made = cls(result)
        made._json = json
        return made

    @property
    def json(self) -> bytes:
        """The result as JSON on one line. Raises like `encode_request`."""
        if not self._json:
            self._json = _written(self)
        elif self._json.partition(b"\n")[1] or self._json.partition(b"\r")[1]:
            # In valid JSON they stand between tokens only; in a line or an event they would end it.
            self._json = self._json.replace(b"\n", b" ").replace(b"\r", b" ")
        return self._json

    @property
    def written_bytes(self) -> int:
        """Bytes of JSON that are kept; 0: none yet, since it has not been asked for."""
        return len(self._json)


def encode_response(request_id: RequestId, result: Mapping[str, Any]) -> bytes:
    """A result as JSON. Raises like `encode_request`."""
    if isinstance(result, LastingResult):
        return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (to_json(request_id), result.json)
    return _written({"jsonrpc": "2.0", "id": request_id, "result": result})


def encode_failure(request_id: RequestId | None, error: Mapping[str, Any]) -> bytes:
    """An error as JSON. Raises like `encode_request`."""
    return _written({"jsonrpc": "2.0", "id": request_id, "error": error})


# An answer of the usual kind has nothing around its result but `jsonrpc` and our number. Only the result itself is
# parsed then, once. Numbers keep their spelling in its bytes (`1.50e3`, long decimals, `1E400`); in the values they are
# what Python makes of them.


def _pattern(text: bytes) -> re.Pattern[bytes]:
    """A pattern in which `_` is any blanks, `J` the version and `I` our number, which is a group."""
    number = rb'"id"_:_(0|[1-9][0-9]{0,17})'
    return re.compile(text.replace(b"I", number).replace(b"J", rb'"jsonrpc"_:_"2\.0"').replace(b"_", rb"[ \t\r\n]*"))


_BEFORE: Final = _pattern(rb'_\{_(?:J_,_I_,_|I_,_J_,_|(J_,_)|I_,_)?"result"_:_')
_AFTER: Final[Mapping[int | None, tuple[int, re.Pattern[bytes]]]] = {
    **dict.fromkeys((1, 2), (0, _pattern(rb"\}\Z"))),
    3: (1, _pattern(rb",_I_\}\Z")),
    4: (1, _pattern(rb",_J_\}\Z")),
    None: (2, _pattern(rb",_(?:J_,_I|I_,_J)_\}\Z")),
}
"""What must be behind the result, and the number of its commas, by the group of `_BEFORE` that matched last."""
_USUAL: Final = re.compile(rb'\{"jsonrpc":"2\.0","id":([1-9][0-9]{0,17}),"result":')
"""How most servers begin their answers: one pattern without blanks takes a fifth of what those above do."""


def parse_answer(data: bytes) -> RpcMessage | Malformed:
    """Like `parse_message`, for what a server sends: a result keeps the bytes in which it came, where it can."""
    if (usual := _USUAL.match(data)) is not None:
        line = data.rstrip(b" \t\r\n")
        if line[-1:] != b"}":
            return parse_message(data)
        number, json = usual[1], line[usual.end() : -1].rstrip()
    else:
        found = _split(data)
        if found is None:
            return parse_message(data)
        number, json = found
    try:
        # Here and in other steps of each call, types are declared instead of cast: a cast is a call.
        result: dict[str, Any] = from_json(json, allow_inf_nan=False)
    except ValueError:
        return parse_message(data)
    if not isinstance(result, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        return parse_message(data)
    return Response(int(number), LastingResult.of(result, json))


def _split(data: bytes) -> tuple[bytes, bytes] | None:
    """The number and the result of an answer, as far as can be told without parsing; None: it is none of these."""
    before = _BEFORE.match(data)
    if before is None:
        return None
    line = data.rstrip(b" \t\r\n")
    begin, end = before.end(), len(line)
    commas, rest = _AFTER[before.lastindex]
    for _ in range(commas):
        end = max(line.rfind(b",", begin, end), begin)
    after = rest.match(line, end if commas else end - 1)
    if after is None:
        return None
    return after[after.lastindex] if after.lastindex else before[before.lastindex or 0], line[
        begin : after.start()
    ].rstrip()


# A JSON text seen without reading it, so that what reading costs can be bounded before.
#
# Values leave marks outside of strings: `[` and `{`, a colon for each member, commas between them. Linear in the
# bytes, but for strings: to cut millions of them out takes as long as to read them, so count their quotes first.

_STRING: Final = re.compile(rb'"[^"]*+"?')


def without_escapes(text: bytes | bytearray) -> bytes:
    """Return a JSON text in which each quote begins or ends a string."""
    return bytes(text.replace(b"\\\\", b"").replace(b'\\"', b""))


def without_strings(bare: bytes) -> bytes:
    """Return what `without_escapes` gave without its strings, each of which leaves a space."""
    return _STRING.sub(b" ", bare)
