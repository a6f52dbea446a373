"""Which token map a client uses, and the ids beside the texts of a tool's result for a client that named one."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import anyio.to_thread

from gateway.errors import MapUnknown
from gateway.escape import escape_text
from gateway.protocol.eras import MAP_KEY, meta_of
from gateway.proxy.result_tokens import ResultTokens, content_of, is_text
from gateway.proxy.results import CallOutcome, IdsSource
from leaf_sdk.errors import MapHashMalformed
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import TokenMap, normalise_hash

# Only the hash of a map counts: a URL beside it is never fetched or even read.

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
        Raises `MapUnknown`: the header is malformed, or names a map that is not held here."""
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
        """The map for an `ai.codec/map` value, `sha256:<hex>`. Raises `MapUnknown`: the value is not a string, or names
        a map that is not held here."""
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


# Long texts are tokenized in a thread, so that the event loop stays free for other requests.

_LARGE: Final = 64 * 1024
"""Characters of a result's texts from which on ids are made in a thread."""


class ClientIds:
    """Puts ids into results."""

    def __init__(self, tokens: ResultTokens | None, min_text_length: int, *, sourced: bool = False) -> None:
        """`tokens` makes the ids; None: results stay as they are. `min_text_length`: in characters; shorter texts get
        no ids. `sourced`: whether outcomes are to say who made the ids that leave."""
        self._tokens = tokens
        self._min_text_length = min_text_length
        self._sourced = sourced

    async def add(self, tool: str, outcome: CallOutcome, token_map: TokenMap | None) -> CallOutcome:
        """The outcome with ids of this map in its result; None: the result stays as it is.

        A result without content, such as one that asks the client something, stays as it is too.
        """
        given = outcome.result
        result = given if token_map is None else await self._made(tool, given, token_map)
        map_id = None if token_map is None else token_map.map_id
        if not self._sourced:
            return outcome._replace(result=result, map_id=map_id)
        ours = _ids_in(result)
        theirs = ours if result is given else _ids_in(given)
        kept = [ids for ids in ours if ids in theirs]
        source: IdsSource = "none" if not ours else "leaf" if len(kept) == len(ours) else "mixed" if kept else "shim"
        return outcome._replace(result=result, map_id=map_id, source=source, ids=sum(map(len, ours)))

    async def _made(self, tool: str, result: dict[str, Any], token_map: TokenMap) -> dict[str, Any]:
        if self._tokens is None or "content" not in result:
            return result
        least = self._min_text_length
        if _text_length(result) < _LARGE:
            return self._tokens.for_client(tool, result, token_map, min_text_length=least)
        make = partial(self._tokens.for_client, tool, result, token_map, min_text_length=least)
        return await anyio.to_thread.run_sync(make)


def _ids_in(result: Mapping[str, Any]) -> list[list[int]]:
    found: list[list[int]] = []
    blocks = (cast("dict[str, Any]", block) for block in content_of(result) if isinstance(block, dict))
    for block in blocks:
        payload: object = meta_of(block).get(CODEC_META_KEY)
        ids: object = cast("dict[str, Any]", payload).get("ids") if isinstance(payload, dict) else None
        if isinstance(ids, list):
            found.append(cast("list[int]", ids))
    return found


def _text_length(result: Mapping[str, Any]) -> int:
    length = 0
    for block in content_of(result):
        if is_text(block):
            length += len(block["text"])
    return length
