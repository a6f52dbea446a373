"""What a client may pass to the chat template besides the messages: switches and words.

They come from outside and go into the template's own text, where control tokens are read. So a value must be a number,
a Boolean or one plain word that is not part of a control token, and a key must not name a part of the conversation.
Pure.
"""

import re
from collections.abc import Mapping
from typing import Final

from gateway.engine.interface import Options
from gateway.errors import RequestInvalid
from gateway.escape import cut_text
from leaf_sdk.vocab import TokenMap

NO_OPTIONS: Final[Options] = {}
_MOST: Final = 16
_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_PARTS: Final = re.compile(r"[A-Za-z0-9]+")
_OURS: Final = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "preserve_reasoning")
)
_SHOWN: Final = 80


def checked_options(given: Mapping[str, object], token_map: TokenMap, param: str) -> Options:
    """Check the options of a request, and return them in order. Raises `RequestInvalid` for one that is not allowed."""
    if len(given) > _MOST:
        raise RequestInvalid(f"{param}: expected at most {_MOST} options, got {len(given)}", param=param)
    return {key: _checked(key, given[key], token_map, param) for key in sorted(given)}


def _checked(key: str, value: object, token_map: TokenMap, param: str) -> str | int | float | bool:
    if not _KEY.fullmatch(key) or key in _OURS:
        words = f"{param}: {cut_text(repr(key), _SHOWN)} can't be an option: it is not a name, or the gateway sets it"
        raise RequestInvalid(words, param=param)
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        words = f"{param}.{key}: expected a number, true, false or one plain word, got {cut_text(repr(value), _SHOWN)}"
        raise RequestInvalid(words, param=param)
    if not _words_of_tokens(token_map).isdisjoint(_PARTS.findall(value)):
        words = f"{param}.{key}: {value!r} is part of a control token, which a template could build of it; use another"
        raise RequestInvalid(words, param=param)
    return value


def _words_of_tokens(token_map: TokenMap) -> frozenset[str]:
    return frozenset(word for text in token_map.special_texts for word in _PARTS.findall(text))
