"""Ids beside the texts of a tool's result, for a client that named a token map.

Turns a raw result into the one that the client gets. Long texts are tokenized in a thread, so that the event loop stays
free for other requests. It knows no session.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final, cast

import anyio.to_thread

from gateway.protocol.eras import meta_of
from gateway.proxy import ResultTokens
from gateway.proxy.result_tokens import content_of, is_text
from gateway.proxy.results import CallOutcome, Source
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import TokenMap

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
        source: Source = "none" if not ours else "leaf" if len(kept) == len(ours) else "mixed" if kept else "shim"
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
    """The ids of each block that has any."""
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
