"""The head of a GGUF file to its key-value pairs, and a cursor at the description of the tensors that follows.

Every length that the file claims is checked against the bytes that are there before anything is allocated for it, and
no head is read beyond `HEAD_BYTES`. The caller may pass a memory map. Knows no tokenizer and no tensor.

Source: the GGUF specification, versions 2 and 3 (little-endian).
"""

import struct
from dataclasses import dataclass
from typing import cast

from leaf_sdk.errors import MapTruncated, MapUnsupported, NotAMap

MAGIC = b"GGUF"
HEAD_BYTES = 64 << 20
"""Maximum bytes of a head. A vocabulary of 262,144 tokens takes 20 MB; a sparse file can claim any number."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_KEYS = 65_536
_MAX_NESTING = 4

Value = int | float | bool | str | list["Value"]


@dataclass(frozen=True, slots=True)
class GgufHead:
    """What stands before the tensors."""

    pairs: dict[str, Value]
    tensors: int
    """How many tensors the file claims to hold."""
    cursor: "Cursor"
    """At the description of the first tensor."""


def read_head(data: bytes | memoryview) -> GgufHead:
    """Read the pairs from a GGUF file's first bytes.

    Raises:
        NotAMap: not a GGUF file, or a damaged one.
        MapTruncated: the bytes end inside the head.
        MapUnsupported: a version of GGUF that we don't read (1, or big-endian).
    """
    view = memoryview(data)[: HEAD_BYTES + 1]
    if bytes(view[:4]) != MAGIC:
        raise NotAMap(f"the file starts with {bytes(view[:4])!r}, expected {MAGIC!r}: it is not a GGUF file")
    cursor = Cursor(view, len(MAGIC))
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise MapUnsupported(
            f"GGUF version {version!r} is not read, expected 2 or 3 (little-endian)", what=f"GGUF version {version!r}"
        )
    tensors = cast("int", cursor.scalar("Q"))
    return GgufHead(_pairs(cursor), tensors, cursor)


def _pairs(cursor: "Cursor") -> dict[str, Value]:
    count = cursor.scalar("Q")
    if not isinstance(count, int) or count > _MAX_KEYS:
        raise NotAMap(f"the GGUF head claims {count!r} keys, expected at most {_MAX_KEYS}: the file is damaged")
    pairs: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.string()
        pairs[key] = cursor.value()
    return pairs


class Cursor:
    """A place in the bytes that only moves forward, and never past their end."""

    def __init__(self, view: memoryview, at: int) -> None:
        self._view = view
        self._at = at

    @property
    def at(self) -> int:
        """How many bytes lie before it."""
        return self._at

    def scalar(self, code: str) -> int | float | bool:
        """Read one little-endian value of a `struct` code."""
        return cast(
            "int | float | bool", struct.unpack_from("<" + code, self._view, self._take(struct.calcsize(code)))[0]
        )

    def string(self) -> str:
        """Read a length and that many bytes of UTF-8; invalid UTF-8 becomes U+FFFD, as it can only serve as a name."""
        size = cast("int", self.scalar("Q"))
        start = self._take(size)
        return str(self._view[start : start + size], "utf-8", "replace")

    def value(self, nesting: int = 0) -> Value:
        """Read a type number and the value of that type."""
        return self._of_type(cast("int", self.scalar("I")), nesting)

    def _of_type(self, kind: int, nesting: int) -> Value:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self._array(nesting + 1)
        if kind not in _SCALARS:
            raise NotAMap(f"value type {kind!r} at byte {self._at} is unknown, expected 0 to 12: the file is damaged")
        return self.scalar(_SCALARS[kind])

    def _array(self, nesting: int) -> list[Value]:
        if nesting > _MAX_NESTING:
            raise NotAMap(f"arrays nest deeper than {_MAX_NESTING} at byte {self._at}: the file is damaged")
        kind, count = cast("int", self.scalar("I")), cast("int", self.scalar("Q"))
        if kind in _SCALARS:
            layout = f"<{count}{_SCALARS[kind]}"
            start = self._take(count * struct.calcsize("<" + _SCALARS[kind]))
            return list(struct.unpack_from(layout, self._view, start))
        if kind == _STRING:
            return cast("list[Value]", self._string_array(count))
        return [self._of_type(kind, nesting) for _ in range(self._checked(count))]

    def _string_array(self, count: int) -> list[str]:
        # A vocabulary has 100,000 of them: this loop is the cost of opening a model, so it calls none of our functions.
        self._checked(count)
        view, at, end = self._view, self._at, len(self._view)
        length_at = struct.Struct("<Q").unpack_from
        strings: list[str] = []
        for _ in range(count):
            start = at + 8
            if start > end:
                raise self._short(at, 8)
            at = start + length_at(view, at)[0]
            if at > end:
                raise self._short(start, at - start)
            strings.append(str(view[start:at], "utf-8", "replace"))
        self._at = at
        return strings

    def _checked(self, count: int) -> int:
        """Refuse a count of things that could not fit even if each were as small as it can be."""
        if count * 8 > len(self._view) - self._at:
            raise self._short(self._at, count * 8)
        return count

    def _take(self, size: int) -> int:
        start = self._at
        if size > len(self._view) - start:
            raise self._short(start, size)
        self._at = start + size
        return start

    def _short(self, start: int, size: int) -> MapTruncated | NotAMap:
        if len(self._view) > HEAD_BYTES:
            return NotAMap(
                f"the GGUF head is larger than {HEAD_BYTES} bytes: it claims {size} more bytes at byte {start}"
            )
        return MapTruncated(
            f"the GGUF head ends at byte {len(self._view)}, expected {size} more bytes at byte {start}; "
            "the download may be incomplete: get the file again",
            offset=start,
        )
