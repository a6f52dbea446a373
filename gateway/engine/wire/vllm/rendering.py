"""Renderings that come as ids, as the text that `engine/rendering/template.py` needs, and proof that this is lossless.

The words of others go into the rendering as marks or with separators (`engine/rendering/foreign.py`), so it does not
matter which ids the server's tokenizer gives them, as long as the map decodes the same text. This is what is proven.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from gateway.engine.interface import Message, Proven
from gateway.engine.markers import MarkerGuard
from gateway.errors import EngineRefused, MapDiffers
from leaf_sdk.vocab import TokenMap

_SEPARATOR: Final = "\U000f1234"
"""One of the characters from which separators and marks are drawn (`engine/rendering/foreign.py`)."""
_MARKERS: Final = 64
"""Special tokens whose guarded text is tried."""


class Renderer(Protocol):
    """An engine that returns renderings as ids."""

    async def rendered(self, messages: Sequence[Message]) -> list[int]:
        """See `Questions`."""
        ...


def text_of_ids(ids: Sequence[int], token_map: TokenMap) -> str:
    """The text of a rendering. Raises `EngineRefused` for an id that the map does not have."""
    unknown = next((token_id for token_id in ids if not token_map.has_id(token_id)), None)
    if unknown is not None:
        raise EngineRefused(f"the engine's chat template gave the id {unknown}, which the map does not have", 502)
    return token_map.decode(ids)


async def check_rendering(engine: Renderer, proven: Proven) -> None:
    """Raise `MapDiffers` unless a rendering's ids are those of its text and guarded words of others stay text in it."""
    token_map = proven.token_map
    guard = MarkerGuard(token_map.special_texts)
    markers = sorted(token_map.special_texts)[:_MARKERS]
    guarded = " ".join(guard.guarded(marker, _SEPARATOR) for marker in markers if len(marker) > 1) + f" {_SEPARATOR}?"
    plain = await engine.rendered([{"role": "user", "content": "?"}])
    ids = await engine.rendered([{"role": "user", "content": guarded}])
    text = text_of_ids(ids, token_map)
    own = token_map.encode(text, specials=True)
    shown = guarded in text and _specials(ids, token_map) == _specials(plain, token_map)
    if own != ids or not shown:
        raise MapDiffers(
            f"the engine's ids for the chat template of {proven.facts.model!r} do not match the map {token_map.id!r}: "
            "the template's own text can't be told from that of messages; check that the map is this model's",
            sample=text[:200],
            map_ids=own[:200],
            engine_ids=ids[:200],
        )


def _specials(ids: Sequence[int], token_map: TokenMap) -> list[int]:
    return [token_id for token_id in ids if token_id in token_map.special_ids]
