"""An untrusted value to payloads, and ids to a payload: the one place that says what counts as one.

A payload is an object with a text `map_id` and a list `ids`; the reference checks no more, so neither does reading.
In place of the list a packed text may stand, and beside it payloads of further maps. What the ids hold is `verify`'s
question, asked before they reach an engine. A map's name is brought into its one spelling, for some writers leave the
`sha256:` out. Below: `packing`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from leaf_sdk.errors import MapHashMalformed
from leaf_sdk.vocab import normalise_hash

from .contract import MORE_KEY, LeafPayload
from .packing import PACKED_KEY, pack, unpack

MAX_MAPS: Final = 16
"""How many payloads of one text are looked at."""


def payload_of(value: object) -> LeafPayload | None:
    """Read a payload, its `map_id` normalised; None when the value is none. The ids' types are not checked here."""
    if not isinstance(value, Mapping):
        return None
    fields = cast("Mapping[str, object]", value)
    map_id, ids = fields.get("map_id"), fields.get("ids")
    if ids is None and isinstance(packed := fields.get(PACKED_KEY), str):
        ids = unpack(packed)
    if not isinstance(map_id, str) or not isinstance(ids, list):
        return None
    return {"map_id": _one_spelling(map_id), "ids": cast("list[int]", ids)}


def payloads_of(value: object) -> list[LeafPayload]:
    """Read the payloads of a text under all its maps, at most `MAX_MAPS`; what is none is left out."""
    if not isinstance(value, Mapping):
        return []
    more = cast("Mapping[str, object]", value).get(MORE_KEY)
    further = cast("list[object]", more)[: MAX_MAPS - 1] if isinstance(more, list) else []
    found = (payload_of(each) for each in [cast("object", value), *further])
    return [payload for payload in found if payload is not None]


def chosen(payloads: Sequence[LeafPayload], wanted: Iterable[str]) -> LeafPayload | None:
    """Choose the payload of the first wanted map that there is; else the first, whose map its reader will refuse."""
    fitting = (each for map_id in wanted for each in payloads if each["map_id"] == map_id)
    return next(fitting, payloads[0] if payloads else None)


def payload_under(ids_by_map: Sequence[tuple[str, list[int]]], *, packed: bool = False) -> dict[str, Any]:
    """Write the payload of one text: the first map's, with those of further maps within it."""
    (map_id, ids), *more = ids_by_map
    payload: dict[str, Any] = {"map_id": map_id, **({PACKED_KEY: pack(ids)} if packed else {"ids": ids})}
    if more:
        payload[MORE_KEY] = [payload_under([each], packed=packed) for each in more]
    return payload


def _one_spelling(map_id: str) -> str:
    try:
        return normalise_hash(map_id)
    except MapHashMalformed:
        return map_id  # not a hash at all: it stays what it is, and matches no map
