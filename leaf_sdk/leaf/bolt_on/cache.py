"""The file of a tool's precached fragments for one map, read and written.

`parts` is the published form: each literal's ids, and the slots between them, as other readers join them. We add two
keys of our own: `x_text`, the fragment's text, and `x_pieces`, its cores (ids) and regions (texts and slots), from
which the ids of the whole can be put together without errors at the seams. Only shapes are checked here; `verify_cache`
checks whether the ids are right. Source: Codec's tool-kit cache file.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, cast

from leaf_sdk.errors import FragmentCacheInvalid

from .template import FragmentText, Part, Slot

MAX_CACHE_BYTES: Final = 16 * 2**20
_HASH = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")


@dataclass(frozen=True, slots=True)
class Ids:
    """A core's ids, or a literal's."""

    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Open:
    """A region, still to be filled."""

    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class CachedFragment:
    """One fragment under one map."""

    source: FragmentText | None
    """None in a file that another tool wrote: the published form does not hold the text."""
    parts: tuple[Ids | Slot, ...]
    pieces: tuple[Ids | Open, ...]
    """Empty where `source` is None."""


@dataclass(frozen=True, slots=True)
class FragmentCache:
    """All fragments of a tool under one map."""

    tokenizer_hash: str
    """64 lower-case hex digits, as in the manifest."""
    fragments: Mapping[str, CachedFragment]

    def to_json(self) -> str:
        """Return the text of the file."""
        fragments = {name: _written(fragment) for name, fragment in self.fragments.items()}
        fields = {"tokenizerHash": self.tokenizer_hash, "fragments": fragments}
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")) + "\n"


def parse_cache(data: bytes) -> FragmentCache:
    """Read a cache file, ours or another tool's.

    Raises:
        FragmentCacheInvalid: not a valid cache; the message names the first fault.
    """
    if len(data) > MAX_CACHE_BYTES:
        _refuse(f"is {len(data)} bytes, expected at most {MAX_CACHE_BYTES}")
    try:
        document: object = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FragmentCacheInvalid(f"a fragment cache is not JSON ({error}); build it again with precache") from error
    fields = _object(document, "the file")
    found = _HASH.fullmatch(str(fields.get("tokenizerHash")))
    if found is None:
        _refuse(f"has tokenizerHash {fields.get('tokenizerHash')!r:.90}, expected 64 hex digits")
    fragments = _object(fields.get("fragments"), "fragments")
    return FragmentCache(found[1].lower(), {name: _read(name, value) for name, value in fragments.items()})


def _written(fragment: CachedFragment) -> dict[str, Any]:
    only = fragment.parts[0] if len(fragment.parts) == 1 else None
    if isinstance(only, Ids):
        fields: dict[str, Any] = {"kind": "static", "ids": list(only.ids)}
        return fields if fragment.source is None else {**fields, "x_text": fragment.source.text}
    fields = {"kind": "template", "parts": [_part(part) for part in fragment.parts]}
    if fragment.source is None:
        return fields
    return {**fields, "x_text": fragment.source.text, "x_pieces": [_piece(piece) for piece in fragment.pieces]}


def _part(part: Ids | Slot) -> dict[str, Any]:
    return {"slot": part.name} if isinstance(part, Slot) else {"ids": list(part.ids)}


def _piece(piece: Ids | Open) -> dict[str, Any]:
    if isinstance(piece, Ids):
        return {"ids": list(piece.ids)}
    return {"region": [{"slot": part.name} if isinstance(part, Slot) else part for part in piece.parts]}


def _read(name: str, value: object) -> CachedFragment:
    where = f"fragments[{name!r:.60}]"
    fields = _object(value, where)
    text = fields.get("x_text")
    if text is not None and not isinstance(text, str):
        _refuse(f"has {where}.x_text {text!r:.60}, expected a string")
    match fields.get("kind"):
        case "static":
            held = _ids(fields.get("ids"), where)
            source = None if text is None else FragmentText(name, text, static=True)
            return CachedFragment(source, (held,), (held,) if source else ())
        case "template":
            parts = tuple(_read_part(each, where) for each in _list(fields.get("parts"), f"{where}.parts"))
            if text is None:
                return CachedFragment(None, parts, ())
            pieces = tuple(_read_piece(each, where) for each in _list(fields.get("x_pieces"), f"{where}.x_pieces"))
            return CachedFragment(FragmentText(name, text), parts, pieces)
        case kind:
            raise _invalid(f"has {where}.kind {kind!r:.60}, expected static or template")


def _read_part(value: object, where: str) -> Ids | Slot:
    fields = _object(value, where)
    slot = fields.get("slot")
    return Slot(slot) if isinstance(slot, str) else _ids(fields.get("ids"), where)


def _read_piece(value: object, where: str) -> Ids | Open:
    fields = _object(value, where)
    if "region" not in fields:
        return _ids(fields.get("ids"), where)
    return Open(tuple(_region_part(each, where) for each in _list(fields["region"], f"{where}.region")))


def _region_part(value: object, where: str) -> Part:
    if isinstance(value, str):
        return value
    slot = _object(value, where).get("slot")
    if not isinstance(slot, str):
        _refuse(f"has {where} with slot {slot!r:.60}, expected a name")
    return Slot(slot)


def _ids(value: object, where: str) -> Ids:
    ids = cast("list[int]", _list(value, f"{where}.ids"))
    if set(map(type, ids)) - {int}:
        _refuse(f"has {where}.ids with something that is not an id")
    return Ids(tuple(ids))


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        _refuse(f"has {where} {value!r:.60}, expected a list")
    return cast("list[object]", value)


def _object(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        _refuse(f"has {where} {value!r:.60}, expected an object")
    return cast("Mapping[str, Any]", value)


def _refuse(why: str) -> NoReturn:
    raise _invalid(why)


def _invalid(why: str) -> FragmentCacheInvalid:
    return FragmentCacheInvalid(f"a fragment cache {why}; build it again with precache")
