"""Selects values in a JSON text by a path, and says where in the text each stands.

A small part of JSONPath: names, indices, slices and wildcards. The text is not changed and no value is rebuilt, since
what the model gets is the text itself. Source: RFC 9535, 2.3.1 to 2.3.4 without steps, 2.5.1. Pure.
"""

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Final, NamedTuple

from gateway.context.large_result_store import MOST_PARSED

_SUPPORTED: Final = "supported are names, indices, slices and wildcards, as in $.items[0].name, $.items[2:5], $.x[*]"
_MOST_SEGMENTS: Final = 32
_MOST_VALUES: Final = 1000
_SEGMENT: Final = re.compile(
    r"\.(?P<name>[^\s.\[\]'\"*]+)|(?P<all>\.\*|\[\*\])|\[(?P<index>-?\d{1,15})\]"
    r"|\[(?P<start>-?\d{1,15})?:(?P<end>-?\d{1,15})?\]"
    r"|\[(?P<quoted>\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')\]",
    re.DOTALL,
)
_IN_DOUBLE_QUOTES: Final = {"\\'": "'", '"': '\\"'}
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_DECODER: Final = json.JSONDecoder()


class Value(NamedTuple):
    """A value's place in a text, in characters."""

    path: str
    start: int
    end: int


class _Segment(NamedTuple):
    name: str | None
    written: re.Match[str]


class _Member(NamedTuple):
    key: str | int
    start: int
    end: int


def select(text: str, path: str) -> list[Value]:
    """Return the values that a path selects, in their order, at most 1,000.

    Raises:
        ValueError: the text is not JSON or too long, or the path is not one of those that are supported; says which.
    """
    segments = _segments(path)
    if len(text) > MOST_PARSED:
        raise ValueError("the result is too large for paths: read it by offset or lines, or search")
    start = _after_blank(text, 0)
    try:
        if text[start] not in "{[":
            raise ValueError
        values = [Value("$", start, _DECODER.raw_decode(text, start)[1])]
        for segment in segments:
            found = chain.from_iterable(_chosen(text, value, segment) for value in values)
            values = list(islice(found, _MOST_VALUES))
    except (ValueError, RecursionError, IndexError):
        raise ValueError("the result is not JSON, so it has no paths: read it by offset or lines, or search") from None
    return values


def _segments(path: str) -> list[_Segment]:
    at = 1 if path.startswith("$") else 0
    # Models leave out the `$`.
    path = path if at or path[:1] in (".", "[") else f".{path}"
    found: list[_Segment] = []
    while at < len(path):
        segment = _segment(path, at)
        if segment is None or len(found) == _MOST_SEGMENTS:
            raise ValueError(f"path {path[:80]!r} can't be read at {path[at : at + 20]!r}: {_SUPPORTED}")
        found.append(segment)
        at = segment.written.end()
    return found


def _segment(path: str, at: int) -> _Segment | None:
    written = _SEGMENT.match(path, at)
    try:
        return None if written is None else _Segment(_name(written), written)
    except ValueError:
        return None


def _chosen(text: str, value: Value, segment: _Segment) -> Iterator[Value]:
    members, written = _members(text, value), segment.written
    chosen: Iterable[_Member] = ()
    if segment.name is not None:
        # Of several members with one name the last one counts, as for most readers.
        chosen = deque((member for member in members if member.key == segment.name), maxlen=1)
    elif written["all"]:
        chosen = members
    elif text[value.start] == "[":
        chosen = islice(members, *_bounds(written, lambda: sum(1 for _ in _members(text, value))))
    for member in chosen:
        yield Value(value.path + _written(member.key), member.start, member.end)


def _bounds(written: re.Match[str], count: Callable[[], int]) -> tuple[int | None, ...]:
    """The first item of an index or a slice, and the one behind the last; `count` tells how many items there are."""
    if written["index"]:
        first = int(written["index"])
        bounds = slice(first, first + 1 or None)
    else:
        bounds = slice(*(int(each) if each else None for each in (written["start"], written["end"])))
    if (bounds.start or 0) >= 0 and (bounds.stop or 0) >= 0:
        return bounds.start, bounds.stop
    return bounds.indices(count())


def _members(text: str, value: Value) -> Iterator[_Member]:
    """The members of an object, or the items of an array; nothing for another value."""
    closer = {"{": "}", "[": "]"}.get(text[value.start])
    if closer is None:
        return
    at, number = _after_blank(text, value.start + 1), 0
    while text[at] != closer:
        key: str | int = number
        if closer == "}":
            key, at = _DECODER.raw_decode(text, at)
            at = _after_blank(text, _after_blank(text, at) + 1)
        end = _DECODER.raw_decode(text, at)[1]
        yield _Member(key, at, end)
        number += 1
        at = _after_blank(text, end)
        at = _after_blank(text, at + 1) if text[at] == "," else at


def _name(segment: re.Match[str]) -> str | None:
    if segment["quoted"] is None:
        return segment["name"]
    quoted: str = segment["quoted"]
    if quoted[0] == "'":
        quoted = '"' + re.sub(r"\\.|\"", lambda found: _IN_DOUBLE_QUOTES.get(found[0], found[0]), quoted[1:-1]) + '"'
    return str(json.loads(quoted))


def _written(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    # JSON can spell a lone surrogate, which can't be encoded.
    plain = key[:64].encode("utf-8", "replace").decode()
    return f".{key}" if re.fullmatch(r"\w{1,64}", key) else f"[{json.dumps(plain, ensure_ascii=False)}]"


def _after_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
