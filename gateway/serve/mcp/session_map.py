"""Which token map a client uses, as it says in a header, in its `initialize` or in a single request.

Turns an `X-Codec-Map` header or an `ai.codec/map` value into one of the maps that this gateway holds, or into a refusal
that lists them. Only the hash counts: a URL beside it is never fetched or even read. Pure; it knows no transport.
"""

from collections.abc import Mapping
from typing import Any, Final

from gateway.errors import MapUnknown
from gateway.observe.escape import escape_text
from gateway.protocol.eras import MAP_KEY, meta_of
from leaf_sdk.errors import MapHashMalformed
from leaf_sdk.vocab import TokenMap, normalise_hash

MAP_HEADER: Final = "x-codec-map"
_SHOWN: Final = 100
_MOST_SPELLED: Final = 64


class SessionMaps:
    """The maps that clients may name."""

    def __init__(self, maps: Mapping[str, TokenMap]) -> None:
        """`maps`: the complete allow-list, by map id."""
        self._maps = maps
        self._spelled: dict[str, TokenMap] = {}
        """By header value, the maps that were found before."""

    def from_header(self, value: str) -> TokenMap:
        """The map for the header `sha256:<hex>`, or `<url>;sha256=<hex>` in any order (Codec, "Vocab negotiation").

        Raises:
            MapUnknown: the header is malformed, or names a map that is not held here.
        """
        if (known := self._spelled.get(value)) is not None:
            return known
        hashes = [
            part for word in value.split(";") if (part := word.strip().lower()).startswith(("sha256=", "sha256:"))
        ]
        if len(hashes) != 1:
            raise MapUnknown(
                f"X-Codec-Map {escape_text(value, _SHOWN)!r} names no map: expected 'sha256:<hex>' or "
                f"'<url>;sha256=<hex>'; {self._offer()}"
            )
        found = self._find("sha256:" + hashes[0][7:])
        if len(self._spelled) < _MOST_SPELLED:
            self._spelled[value] = found
        return found

    def choose(self, params: Mapping[str, Any], otherwise: TokenMap | None) -> TokenMap | None:
        """The map that the `_meta` of these params names; `otherwise` if it names none. Raises `MapUnknown`."""
        meta = meta_of(params)
        return self.from_meta(meta[MAP_KEY]) if MAP_KEY in meta else otherwise

    def from_meta(self, value: object) -> TokenMap:
        """The map for an `ai.codec/map` value, `sha256:<hex>`.

        Raises:
            MapUnknown: the value is not a string, or names a map that is not held here.
        """
        if not isinstance(value, str):
            raise MapUnknown(f"{MAP_KEY} must be a string 'sha256:<hex>'; {self._offer()}")
        return self._find(value)

    def _find(self, map_id: str) -> TokenMap:
        try:
            found = self._maps.get(normalise_hash(map_id))
        except MapHashMalformed:
            found = None
        if found is None:
            raise MapUnknown(f"map {escape_text(map_id, _SHOWN)!r} is not accepted here; {self._offer()}")
        return found

    def _offer(self) -> str:
        return f"accepted: {', '.join(sorted(self._maps))}" if self._maps else "this gateway has no maps: name none"
