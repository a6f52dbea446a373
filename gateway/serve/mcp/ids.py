"""Ids beside the texts of a tool's result, for a client that named a token map.

Turns a raw result into the one that the client gets; a long one beside the event loop, which others need meanwhile. It
knows no session.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import anyio.to_thread

from gateway.proxy import ResultTokens
from gateway.proxy.blocks import content_of, is_text
from leaf_sdk.vocab import TokenMap

_LARGE: Final = 64 * 1024
"""Characters of a result's texts from which on ids are made beside the event loop."""


class ClientIds:
    """Puts ids into results."""

    def __init__(self, tokens: ResultTokens | None, min_text_length: int) -> None:
        """`tokens`: None: results stay as they are. `min_text_length`: shorter texts get no ids, in characters."""
        self._tokens = tokens
        self._min_text_length = min_text_length

    async def add(self, tool: str, result: dict[str, Any], token_map: TokenMap) -> dict[str, Any]:
        """The result with ids of that map; one without content (a question, say) as it is."""
        if self._tokens is None or "content" not in result:
            return result
        least = self._min_text_length
        if _text_length(result) < _LARGE:
            return self._tokens.for_client(tool, result, token_map, min_text_length=least)
        make = partial(self._tokens.for_client, tool, result, token_map, min_text_length=least)
        return await anyio.to_thread.run_sync(make)


def _text_length(result: Mapping[str, Any]) -> int:
    length = 0
    for block in content_of(result):
        if is_text(block):
            length += len(block["text"])
    return length
