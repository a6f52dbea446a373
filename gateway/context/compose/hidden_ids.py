"""Which special tokens a model's text does not show: those that structure prompts, wherever the model writes them.

Engines leave out a control token's text; ids have no text, so it is decided here. A token that a map calls special may
also be markup that the model was taught to answer with (`<answer>`), which engines show and a map does not tell apart:
so only tokens in the form of control tokens are hidden. An id that the map does not have has no text at all: a model's
vocabulary is often padded beyond its tokenizer's, and engines leave such ids out of the text too. Pure.
"""

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from leaf_sdk.vocab import TokenMap

_CONTROL: Final = re.compile(
    r"<[|｜].*[|｜]>|\[\|.*\|\]|</?s>|<(?:unk|pad|bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]", re.DOTALL
)
_FOUND: Final[WeakKeyDictionary[TokenMap, dict[str, int]]] = WeakKeyDictionary()
"""The control tokens of each map, which may have thousands of special tokens."""


@dataclass(frozen=True, slots=True)
class _Hidden:
    """Some ids of a map, and all that it does not have."""

    token_map: TokenMap
    named: frozenset[int]

    def __contains__(self, token_id: object) -> bool:
        return token_id in self.named or (isinstance(token_id, int) and not self.token_map.has_id(token_id))


def hidden_ids(token_map: TokenMap, shown: Iterable[str] = ()) -> Container[int]:
    """Return the ids whose text is not shown.

    `shown`: texts for which somebody waits, such as a format's markers; tokens that occur in them are not hidden.
    """
    found = _FOUND.get(token_map)
    if found is None:
        tokens = token_map.special_texts.items()
        found = _FOUND[token_map] = {text: token_id for text, token_id in tokens if _CONTROL.fullmatch(text)}
    waited = "\n".join(shown)
    return _Hidden(token_map, frozenset(token_id for text, token_id in found.items() if text not in waited))


def spelled(token_map: TokenMap, token_id: int) -> bytes:
    """The bytes of a generated id: none for one that the map does not have."""
    return token_map.token_bytes(token_id) if token_map.has_id(token_id) else b""
