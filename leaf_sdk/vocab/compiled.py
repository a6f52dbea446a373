"""A map in the form that loads fastest: the bytes of every id in one piece, everything else in a short head.

Parsing 6 MB of JSON to decode three ids is a waste, so what decoding and checking need is stored ready for use: a head
(JSON), where each id's bytes begin (32-bit little-endian), the bytes, and a sha256 over all of it. The vocabulary and
the merges, which only encoding needs, are read from the map itself when they are first needed. A compiled map is a
cache, not an exchange format: one that does not fit is discarded and made again.
"""

import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, Generic, TypeVar, cast, overload

from leaf_sdk.errors import MapHashMismatch, NotAMap

from .blocks import ToolCalling, ZstdDictionary
from .decode_table import DecodeTable
from .fields import json_object
from .pre_tokenizers import PreTokenizer
from .token_map import TokenMap
from .tokenizer import Metaspace

_MAGIC = b"CODECMAP\x01"
_DIGEST = 32
_PLAIN = (
    *("id", "version", "map_id", "encoder", "normalizer", "ignore_merges", "algorithm", "published_at"),
    *("byte_fallback", "added_tokens"),
)

Item = TypeVar("Item")


def compile_map(token_map: TokenMap) -> bytes | None:
    """Return a map's compiled form; None for a vocabulary with so many gaps that there is nothing to gain."""
    rows = token_map.table.rows()
    if rows is None:
        return None
    head = {
        **{name: getattr(token_map, name) for name in _PLAIN},
        "special_tokens": dict(token_map.special_tokens),
        "special_ids": sorted(token_map.special_ids),
        "special_texts": token_map.special_texts,
        "pre_tokenizer": token_map.pre_tokenizer and asdict(token_map.pre_tokenizer),
        "metaspace": token_map.metaspace and asdict(token_map.metaspace),
        "tool_calling": token_map.tool_calling and asdict(token_map.tool_calling),
        "zstd_dictionaries": [asdict(each) for each in token_map.zstd_dictionaries],
    }
    text = json.dumps(head).encode()
    # No token is empty, so an entry without bytes is a gap.
    starts = _little_endian(array("I", [0, *accumulate(len(row or b"") for row in rows)]))
    body = b"".join(row or b"" for row in rows)
    data = _MAGIC + struct.pack("<II", len(text), len(rows)) + text + starts + body
    return data + hashlib.sha256(data).digest()


def load_compiled(data: bytes, map_id: str, read_map: Callable[[], TokenMap]) -> TokenMap:
    """Return the map of a compiled form.

    Args:
        data: from `compile_map`.
        map_id: the map whose form it must be.
        read_map: reads the whole map; called at most once, when something is encoded.

    Raises:
        NotAMap: damaged, or of another version: make it again.
        MapHashMismatch: it is the form of another map.
    """
    if data[: len(_MAGIC)] != _MAGIC or hashlib.sha256(data[:-_DIGEST]).digest() != data[-_DIGEST:]:
        raise NotAMap("the compiled map is damaged, or of another version; compile the map again")
    at = len(_MAGIC) + 8
    head_size, count = struct.unpack("<II", data[at - 8 : at])
    head = json_object(data[at : at + head_size], "the head of a compiled map")
    if head["map_id"] != map_id:
        raise MapHashMismatch(map_id, str(head["map_id"]))
    starts = array("I", data[at + head_size : at + head_size + 4 * (count + 1)])
    if sys.byteorder == "big":
        starts.byteswap()
    body = data[at + head_size + 4 * (count + 1) : -_DIGEST]
    rows = [body[start:end] or None for start, end in pairwise(starts)]
    return _token_map(head, DecodeTable.of_rows(rows), _Later(read_map))


def _token_map(head: Mapping[str, Any], table: DecodeTable, later: "_Later") -> TokenMap:
    fallback: list[int] | None = head["byte_fallback"]
    pre, metaspace, calls = head["pre_tokenizer"], head["metaspace"], head["tool_calling"]
    token_map = TokenMap(
        **{name: head[name] for name in _PLAIN if name not in ("byte_fallback", "added_tokens")},
        vocab=_LaterMapping(lambda: later.map.vocab),
        special_tokens=head["special_tokens"],
        merges=_LaterSequence(lambda: later.map.merges),
        scores=_LaterSequence(lambda: later.map.scores),
        pre_tokenizer=PreTokenizer(pre["pattern"], tuple(pre["before"])) if pre else None,
        metaspace=Metaspace(**metaspace) if metaspace else None,
        tool_calling=ToolCalling(**calls) if calls else None,
        zstd_dictionaries=tuple(ZstdDictionary(**each) for each in head["zstd_dictionaries"]),
        byte_fallback=(fallback[0], fallback[1]) if fallback else None,
        added_tokens=tuple(head["added_tokens"]),
    )
    # Properties that are otherwise computed from the vocabulary on first use are already known here.
    known = {"table": table, "special_ids": frozenset(head["special_ids"]), "special_texts": head["special_texts"]}
    vars(token_map).update(known)
    return token_map


def _little_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


class _Later:
    """The whole map, read when it is needed."""

    def __init__(self, read_map: Callable[[], TokenMap]) -> None:
        self._read_map = read_map

    @cached_property
    def map(self) -> TokenMap:
        return self._read_map()


class _LaterMapping(Mapping[str, int]):
    def __init__(self, get: Callable[[], Mapping[str, int]]) -> None:
        self._get = get

    def __getitem__(self, key: str) -> int:
        return self._get()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._get())

    def __len__(self) -> int:
        return len(self._get())


class _LaterSequence(Sequence[Item], Generic[Item]):
    def __init__(self, get: Callable[[], Sequence[Item]]) -> None:
        self._get = get

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        return self._get()[index]

    def __len__(self) -> int:
        return len(self._get())

    def __eq__(self, other: object) -> bool:
        return list(self) == list(cast("Sequence[Any]", other)) if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))
