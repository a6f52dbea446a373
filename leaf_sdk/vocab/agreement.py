"""A map compared with something else: another tokenizer over many texts, or another map token by token.

Reports where they differ, with both sides, and decides nothing. The other tokenizer is any function from a text to ids:
an engine's, a library's. Texts that spell a special token are left out and counted: there a map differs on purpose,
since ordinary text never becomes one.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from .token_map import TokenMap


@dataclass(frozen=True, slots=True)
class Difference:
    """One text with the ids that each side gives."""

    text: str
    ours: list[int]
    theirs: list[int]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The result of comparing many texts."""

    compared: int
    left_out: int
    """Texts that spell a special token."""
    differences: list[Difference]


def compare_texts(token_map: TokenMap, tokenize: Callable[[str], list[int]], texts: Iterable[str]) -> Agreement:
    """Encode texts with the map and with `tokenize`, and return those whose ids differ.

    Raises:
        MapUnsupported: the map can't encode.
    """
    spelled = re.compile("|".join(map(re.escape, token_map.special_texts)) or r"(?!)")
    compared = left_out = 0
    differences: list[Difference] = []
    for text in texts:
        if spelled.search(text):
            left_out += 1
            continue
        compared += 1
        ours, theirs = token_map.encode(text), tokenize(text)
        if ours != theirs:
            differences.append(Difference(text, ours, theirs))
    return Agreement(compared, left_out, differences)


def compare_specials(token_map: TokenMap, tokenize: Callable[[str], list[int]]) -> list[Difference]:
    """Return the special tokens whose text gets other ids from `tokenize`, which must parse special tokens."""
    wrong: list[Difference] = []
    for text, token_id in sorted(token_map.special_texts.items(), key=lambda item: item[1]):
        theirs = tokenize(text)
        if theirs != [token_id]:
            wrong.append(Difference(text, [token_id], theirs))
    return wrong


@dataclass(frozen=True, slots=True)
class MapDifferences:
    """Where two maps differ; empty tables where they do not."""

    only_first: Mapping[str, int]
    only_second: Mapping[str, int]
    moved: Mapping[str, tuple[int, int]]
    """Tokens that both have, under different ids."""
    specials: Mapping[str, tuple[int | None, int | None]]
    """Special tokens that the other map does not have, or has under another id."""
    fields: list[str] = field(default_factory=list[str])
    """Other things that change ids: merges, scores, the pre-tokenizer ..."""

    def __bool__(self) -> bool:
        return bool(self.only_first or self.only_second or self.moved or self.specials or self.fields)


_FIELDS = ("encoder", "algorithm", "normalizer", "ignore_merges", "metaspace", "byte_fallback", "pre_tokenizer")


def compare_maps(first: TokenMap, second: TokenMap) -> MapDifferences:
    """Compare two maps token by token, and in everything else that encoding and decoding use."""
    a, b = first.vocab, second.vocab
    one, two = first.special_texts, second.special_texts
    lists = ("merges", "scores", "added_tokens")
    fields = [name for name in _FIELDS if getattr(first, name) != getattr(second, name)]
    return MapDifferences(
        only_first={token: a[token] for token in a if token not in b},
        only_second={token: b[token] for token in b if token not in a},
        moved={token: (a[token], b[token]) for token in a if token in b and a[token] != b[token]},
        specials={text: (one.get(text), two.get(text)) for text in {**one, **two} if one.get(text) != two.get(text)},
        fields=fields + [name for name in lists if list(getattr(first, name)) != list(getattr(second, name))],
    )
