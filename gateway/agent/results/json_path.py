"""Selects values in a JSON text by a path, and says where in the text each stands.

A small part of JSONPath: names, indices, slices and wildcards. The text is not changed and no value is rebuilt, since
what the model gets is the text itself. Source: RFC 9535, 2.3.1 to 2.3.4 without steps, 2.5.1. Pure.
"""

import json
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

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


class _Member(NamedTuple):
    key: str | int
    start: int
    end: int


def select(text: str, path: str) -> list[Value]:
    """Return the values that a path selects, in their order, at most 1,000.

    Raises:
        ValueError: the text is not JSON, or the path is not one of those that are supported; says which.
    """
    segments = _segments(path)
    start = _after_blank(text, 0)
    try:
        if text[start] not in "{[":
            raise ValueError
        values = [Value("$", start, _DECODER.raw_decode(text, start)[1])]
        for segment in segments:
            values = [found for value in values for found in _chosen(text, value, segment)][:_MOST_VALUES]
    except (ValueError, RecursionError, IndexError):
        raise ValueError("the result is not JSON, so it has no paths: read it by offset or lines, or search") from None
    return values


def _segments(path: str) -> list[re.Match[str]]:
    at = 1 if path.startswith("$") else 0
    # Models leave out the `$`.
    path = path if at or path[:1] in (".", "[") else f".{path}"
    found: list[re.Match[str]] = []
    while at < len(path):
        segment = _SEGMENT.match(path, at)
        if segment is None or not _has_name(segment) or len(found) == _MOST_SEGMENTS:
            raise ValueError(f"path {path[:80]!r} can't be read at {path[at : at + 20]!r}: {_SUPPORTED}")
        found.append(segment)
        at = segment.end()
    return found


def _chosen(text: str, value: Value, segment: re.Match[str]) -> Iterator[Value]:
    kind, members = text[value.start], list(_members(text, value))
    name = _name(segment)
    if name is not None:
        # Of several members with one name the last one counts, as for most readers.
        chosen = [member for member in members if member.key == name][-1:] if kind == "{" else []
    elif segment["all"]:
        chosen = members
    elif kind != "[":
        chosen = []
    elif segment["index"]:
        index = int(segment["index"])
        chosen = members[index:][:1] if index >= -len(members) else []
    else:
        chosen = members[_bound(segment["start"]) : _bound(segment["end"])]
    for member in chosen:
        yield Value(value.path + _written(member.key), member.start, member.end)


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


def _has_name(segment: re.Match[str]) -> bool:
    """Whether the segment's quoted name, if it has one, can be read."""
    try:
        _name(segment)
    except ValueError:
        return False
    return True


def _name(segment: re.Match[str]) -> str | None:
    if segment["quoted"] is None:
        return segment["name"]
    quoted: str = segment["quoted"]
    if quoted[0] == "'":
        quoted = '"' + re.sub(r"\\.|\"", lambda found: _IN_DOUBLE_QUOTES.get(found[0], found[0]), quoted[1:-1]) + '"'
    return str(json.loads(quoted))


def _bound(written: str | None) -> int | None:
    return int(written) if written else None


def _written(key: str | int) -> str:
    if isinstance(key, int):
        return f"[{key}]"
    # JSON can spell a lone surrogate, which can't be encoded.
    plain = key[:64].encode("utf-8", "replace").decode()
    return f".{key}" if re.fullmatch(r"\w{1,64}", key) else f"[{json.dumps(plain, ensure_ascii=False)}]"


def _after_blank(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at
