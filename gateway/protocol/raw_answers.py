"""A server's answer into its result and the bytes of the result, so that it can be passed on as it came.

Turns a message into the same `RpcMessage` as `parse_message`, with a result that remembers its own JSON where the
message is an answer of the usual kind: nothing around the result but `jsonrpc` and our number. Only the result itself
is parsed then, once. Numbers keep their spelling in these bytes (`1.50e3`, long decimals, `1E400`); in the values they
are what Python makes of them.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json

from gateway.protocol.messages import LastingResult, Malformed, Response, RpcMessage, names_no_number, parse_message


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
_USUAL: Final = b'{"jsonrpc":"2.0","id":'
_RESULT: Final = b',"result":'
_NUMBER: Final = re.compile(rb"[1-9][0-9]{0,17}")


def parse_answer(data: bytes) -> RpcMessage | Malformed:
    """Like `parse_message`, for what a server sends: a result keeps the bytes in which it came, where it can."""
    # Most servers write their answers like this, and most are small: it costs a fifth of what the patterns do.
    if data.startswith(_USUAL) and (end := data.find(_RESULT, 22, 52)) > 0 and _NUMBER.fullmatch(data, 22, end):
        number, json = data[22:end], data[end + 10 :].rstrip(b" \t\r\n")
        if not json.endswith(b"}"):
            return parse_message(data)
        json = json[:-1].rstrip()
    else:
        found = _split(data)
        if found is None:
            return parse_message(data)
        number, json = found
    try:
        # Here and in other steps of each call, types are declared instead of cast: a cast is a call.
        result: dict[str, Any] = from_json(json, allow_inf_nan=False)
    except ValueError:
        result = _with_large_numbers(json)
    if not isinstance(result, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
        return parse_message(data)
    # Not with `in`, which tries its left side as a number first.
    if json.find(b"\n") >= 0 or json.find(b"\r") >= 0:
        # In valid JSON they stand between tokens only; in a line or an event they would end it.
        json = json.replace(b"\n", b" ").replace(b"\r", b" ")
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


def _with_large_numbers(json: bytes) -> Any:
    """The value of JSON with a number that is too large for Python; None if it is not JSON."""
    if names_no_number(json):
        return None
    try:
        return from_json(json)
    except ValueError:
        return None
