"""The head of a GGUF file to the tokenizer that it carries; tensors are never touched.

A GGUF file opens with key-value pairs, and llama.cpp's tokenizer is among them: the tokens, their types, the merges,
the name of the pre-tokenizer, the chat template. The caller passes the file as a memory map, so that a model of many
gigabytes costs only its first megabytes. Every length that the file claims is checked against the bytes that are there
before anything is allocated for it. Knows nothing of Codec maps: `build` makes one from this.

Source: the GGUF specification, versions 2 and 3 (little-endian).
"""

import struct
from dataclasses import dataclass, field
from typing import cast

from leaf_sdk.errors import MapTruncated, MapUnsupported, NotAMap

MAGIC = b"GGUF"

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""llama.cpp's token types."""

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_KEYS = 65_536
_MAX_NESTING = 4

Value = int | float | bool | str | list["Value"]


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """What a GGUF file says about its tokenizer, unchanged."""

    model: str
    """`tokenizer.ggml.model`: "gpt2" for byte-level BPE, "llama" for SentencePiece ..."""
    pre: str | None
    tokens: list[str]
    token_types: list[int]
    """One per token; all NORMAL where the file has none."""
    merges: list[str]
    chat_template: str | None
    name: str | None
    """`general.basename`, else `general.name`."""
    organization: str | None
    bos_id: int | None
    eos_id: int | None
    add_bos: bool | None
    scores: list[float] = field(default_factory=list[float])
    """One per token in a SentencePiece vocabulary; empty where the file has none."""
    add_space_prefix: bool | None = None


def read_gguf_tokenizer(data: bytes | memoryview) -> GgufTokenizer:
    """Read the tokenizer from a GGUF file's first bytes (or from the whole file, preferably as a memory map).

    Raises:
        NotAMap: not a GGUF file, or one without a tokenizer.
        MapTruncated: the bytes end inside the head.
        MapUnsupported: a version of GGUF that we don't read (1, or big-endian).
    """
    view = memoryview(data)
    if bytes(view[:4]) != MAGIC:
        raise NotAMap(f"the file starts with {bytes(view[:4])!r}, expected {MAGIC!r}: it is not a GGUF file")
    cursor = _Cursor(view, len(MAGIC))
    version = cursor.scalar("I")
    if version not in (2, 3):
        raise MapUnsupported(
            f"GGUF version {version!r} is not read, expected 2 or 3 (little-endian)", what=f"GGUF version {version!r}"
        )
    cursor.scalar("Q")  # the number of tensors, which come after what we want
    pairs = _pairs(cursor)
    if "tokenizer.ggml.tokens" not in pairs:
        raise NotAMap("the GGUF file holds no tokenizer (tokenizer.ggml.tokens is missing); use a model's file")
    tokens = _strings(pairs, "tokenizer.ggml.tokens")
    return GgufTokenizer(
        model=_text(pairs, "tokenizer.ggml.model") or "",
        pre=_text(pairs, "tokenizer.ggml.pre"),
        tokens=tokens,
        token_types=_types(pairs, len(tokens)),
        merges=_strings(pairs, "tokenizer.ggml.merges"),
        chat_template=_text(pairs, "tokenizer.chat_template"),
        name=_text(pairs, "general.basename") or _text(pairs, "general.name"),
        organization=_text(pairs, "general.organization"),
        bos_id=_whole(pairs, "tokenizer.ggml.bos_token_id"),
        eos_id=_whole(pairs, "tokenizer.ggml.eos_token_id"),
        add_bos=_flag(pairs, "tokenizer.ggml.add_bos_token"),
        scores=_floats(pairs, "tokenizer.ggml.scores"),
        add_space_prefix=_flag(pairs, "tokenizer.ggml.add_space_prefix"),
    )


def _pairs(cursor: "_Cursor") -> dict[str, Value]:
    count = cursor.scalar("Q")
    if not isinstance(count, int) or count > _MAX_KEYS:
        raise NotAMap(f"the GGUF head claims {count!r} keys, expected at most {_MAX_KEYS}: the file is damaged")
    pairs: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.string()
        pairs[key] = cursor.value()
    return pairs


class _Cursor:
    """A place in the bytes that only moves forward, and never past their end."""

    def __init__(self, view: memoryview, at: int) -> None:
        self._view = view
        self._at = at

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

    def _short(self, start: int, size: int) -> MapTruncated:
        return MapTruncated(
            f"the GGUF head ends at byte {len(self._view)}, expected {size} more bytes at byte {start}; "
            "the download may be incomplete: get the file again",
            offset=start,
        )


def _strings(pairs: dict[str, Value], key: str) -> list[str]:
    value = pairs.get(key, [])
    if not isinstance(value, list) or (value and not isinstance(value[0], str)):
        raise NotAMap(f"{key} is {type(value).__name__}, expected a list of strings: the file is damaged")
    return cast("list[str]", value)


def _floats(pairs: dict[str, Value], key: str) -> list[float]:
    value = pairs.get(key, [])
    if not isinstance(value, list) or not {*map(type, value)} <= {float, int}:
        raise NotAMap(f"{key} is {type(value).__name__}, expected a list of numbers: the file is damaged")
    return cast("list[float]", value)


def _types(pairs: dict[str, Value], count: int) -> list[int]:
    value = pairs.get("tokenizer.ggml.token_type", [NORMAL] * count)
    if not isinstance(value, list) or len(value) != count:
        raise NotAMap(
            f"tokenizer.ggml.token_type does not hold one type for each of {count} tokens: the file is damaged"
        )
    return cast("list[int]", value)


def _text(pairs: dict[str, Value], key: str) -> str | None:
    value = pairs.get(key)
    return value if isinstance(value, str) else None


def _whole(pairs: dict[str, Value], key: str) -> int | None:
    value = pairs.get(key)
    return value if type(value) is int else None


def _flag(pairs: dict[str, Value], key: str) -> bool | None:
    value = pairs.get(key)
    return value if isinstance(value, bool) else None
