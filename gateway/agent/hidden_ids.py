"""Which special tokens a model's text does not show: those that structure prompts, wherever the model writes them.

Engines leave out a control token's text; ids have no text, so it is decided here. A token that a map calls special may
also be markup that the model was taught to answer with (`<answer>`), which engines show and a map does not tell apart:
so only tokens in the form of control tokens are hidden. Pure.
"""

import re
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from leaf_sdk.vocab import TokenMap

_CONTROL: Final = re.compile(
    r"<[|｜].*[|｜]>|\[\|.*\|\]|</?s>|<(?:unk|pad|bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]", re.DOTALL
)
_FOUND: Final[WeakKeyDictionary[TokenMap, dict[str, int]]] = WeakKeyDictionary()
"""The control tokens of each map, which may have thousands of special tokens."""


def hidden_ids(token_map: TokenMap, shown: Iterable[str] = ()) -> frozenset[int]:
    """Return the ids whose text is not shown.

    `shown`: texts for which somebody waits, such as a format's markers; tokens that occur in them are not hidden.
    """
    found = _FOUND.get(token_map)
    if found is None:
        tokens = token_map.special_texts.items()
        found = _FOUND[token_map] = {text: token_id for text, token_id in tokens if _CONTROL.fullmatch(text)}
    waited = "\n".join(shown)
    return frozenset(token_id for text, token_id in found.items() if text not in waited)
