"""An untrusted value to payloads, and ids to a payload: the one place that says what counts as one.

A payload is an object with a text `map_id` and a list `ids`; the reference checks no more, so neither does reading. A
packed text may replace the list, and payloads of further maps may be added. Whether the ids may be used is `verify`'s
question, asked before they reach an engine. A map's name is normalised, because some writers leave out the `sha256:`.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from leaf_sdk.errors import MapHashMalformed
from leaf_sdk.vocab import normalise_hash

from .contract import MORE_KEY, LeafPayload
from .packing import PACKED_KEY, pack, unpack
from .shapes import is_mapping

MAX_MAPS: Final = 16
"""How many payloads of one text are read."""


def payload_of(value: object) -> LeafPayload | None:
    """Read a payload and normalise its `map_id`; None if the value is not one. The ids' types are not checked here."""
    if not is_mapping(value):
        return None
    map_id, ids = value.get("map_id"), value.get("ids")
    if ids is None and isinstance(packed := value.get(PACKED_KEY), str):
        ids = unpack(packed)
    if not isinstance(map_id, str) or not isinstance(ids, list):
        return None
    return {"map_id": _one_spelling(map_id), "ids": ids}


def payloads_of(value: object) -> list[LeafPayload]:
    """Read the payloads of a text under all its maps, at most `MAX_MAPS`; what is not a payload is left out."""
    found = [payload_of(each) for each in _written(value)]
    return [payload for payload in found if payload is not None]


def is_spelled_out(value: object) -> bool:
    """Return whether every payload spells its map's name in the normal form, the only one that the reference reads."""
    names = [each.get("map_id") for each in _written(value) if is_mapping(each)]
    return all(isinstance(name, str) and _one_spelling(name) == name for name in names)


def chosen(payloads: Sequence[LeafPayload], wanted: Iterable[str]) -> LeafPayload | None:
    """Return the payload of the first wanted map that has one, else the first payload, which its reader may refuse."""
    if len(payloads) == 1:
        return payloads[0]
    fitting = (each for map_id in wanted for each in payloads if each["map_id"] == map_id)
    return next(fitting, payloads[0] if payloads else None)


def payload_under(ids_by_map: Sequence[tuple[str, list[int]]], *, packed: bool = False) -> dict[str, Any]:
    """Write the payload of one text: the first map's, with those of further maps inside it."""
    (map_id, ids), *more = ids_by_map
    payload: dict[str, Any] = {"map_id": map_id, **({PACKED_KEY: pack(ids)} if packed else {"ids": ids})}
    if more:
        payload[MORE_KEY] = [payload_under([each], packed=packed) for each in more]
    return payload


def _written(value: object) -> list[object]:
    """Return the payloads of a text as they were written."""
    if not is_mapping(value):
        return []
    more = value.get(MORE_KEY)
    return [value, *more[: MAX_MAPS - 1]] if isinstance(more, list) else [value]


def _one_spelling(map_id: str) -> str:
    try:
        return normalise_hash(map_id)
    except MapHashMalformed:
        return map_id  # not a hash at all: left as it is, it matches no map
