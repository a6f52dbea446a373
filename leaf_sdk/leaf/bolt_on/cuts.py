"""A map to the places where text may be cut and encoded in parts: the ids of the parts, joined, are those of the whole.

A byte-level tokenizer cuts text into pieces and merges inside each, so parts may be encoded separately exactly where a
piece is sure to end, whatever comes before and after. This is derived from the pre-tokenizer, not tried out: a place
between two ASCII characters is safe if no match of any stage spans them or looks ahead at the second, and in some stage
a match is sure to begin there. Text to the left is then matched as if it ended there, text to the right as if it began
there; hence patterns with lookbehinds are refused. A map of another kind has no safe places.
"""

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Protocol, cast

from leaf_sdk.errors import MapUnsupported
from leaf_sdk.vocab import TokenMap
from leaf_sdk.vocab.pre_tokenizers import to_tokenizers

from .patterns import UNIVERSE, Pattern, PatternUnknown, read_pattern

# The pattern by which `tokenizers`' ByteLevel cuts where `use_regex` is on.
_BYTE_LEVEL: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class _Stage(Protocol):
    """One step of cutting. Later steps see the pieces of earlier ones, each on its own."""

    def spans(self, before: str, after: str) -> bool:
        """Return whether the cuts on one side may depend on the text on the other."""
        ...

    def parts(self, before: str, after: str) -> bool:
        """Return whether there is sure to be a cut between two characters that this stage does not span."""
        ...


@dataclass(frozen=True, slots=True)
class _Digits:
    individual: bool

    def spans(self, before: str, after: str) -> bool:
        return not self.individual and before.isdigit() and after.isdigit()

    def parts(self, before: str, after: str) -> bool:
        return before.isdigit() or after.isdigit()


@dataclass(frozen=True, slots=True)
class _Split:
    pattern: Pattern

    def spans(self, before: str, after: str) -> bool:
        return self.pattern.spans(before, after)

    def parts(self, before: str, after: str) -> bool:
        return self.pattern.starts(after) and not self.pattern.spans(before, after)


@dataclass(frozen=True, slots=True)
class Cuts:
    """Where text may be cut under one map: nowhere if there are no stages."""

    stages: tuple[_Stage, ...]
    normalizes: bool = False
    added: tuple[str, ...] = ()
    """Added tokens that are matched in ordinary text, before any stage."""

    def places(self, literal: str) -> list[int]:
        """List the offsets inside a literal text at which it may be cut, whatever comes before and after it."""
        return [at for at in range(1, len(literal)) if self.allows(literal, at)]

    def allows(self, literal: str, at: int) -> bool:
        """Return whether a literal text may be cut before its character `at`."""
        before, after = literal[at - 1], literal[at]
        if before not in UNIVERSE or after not in UNIVERSE:
            return False
        # NFC may join an accent to the character after the cut, unless that is a blank or more ASCII follows it.
        followed = at + 1 < len(literal) and literal[at + 1].isascii()
        if self.normalizes and after not in " \n" and not followed:
            return False
        if any(before + after in token for token in self.added):
            return False
        for stage in self.stages:
            if stage.spans(before, after):
                return False
            if stage.parts(before, after):
                return True  # later stages see the two sides separately
        return False


@lru_cache(maxsize=64)
def cuts_of(token_map: TokenMap) -> Cuts:
    """Return the safe cuts of a map; none where its pre-tokenizer is not understood."""
    pre_tokenizer = token_map.pre_tokenizer
    if token_map.encoder != "byte_level" or pre_tokenizer is None or token_map.normalizer not in (None, "NFC"):
        return Cuts(())
    try:
        found = cuts_by(to_tokenizers(pre_tokenizer), normalizes=token_map.normalizer == "NFC")
        return replace(found, added=tuple(token_map.added_tokens))
    except (MapUnsupported, PatternUnknown):
        return Cuts(())


def cuts_by(pre_tokenizer: object, *, normalizes: bool = False) -> Cuts:
    """Return the safe cuts of a pre-tokenizer of `tokenizers`, after NFC or without a normalizer.

    Raises:
        PatternUnknown: a stage or a pattern that is not understood.
    """
    state = cast("object", json.loads(cast("Any", pre_tokenizer).__getstate__()))
    return Cuts(tuple(_stages(state)), normalizes)


def _stages(state: object) -> list[_Stage]:
    """Read the stages from what `tokenizers` itself reports, so that no second description can differ from it."""
    node = cast("dict[str, Any]", state)
    match node:
        case {"type": "Sequence", "pretokenizers": inner}:
            return [stage for each in cast("list[object]", inner) for stage in _stages(each)]
        case {"type": "Digits", "individual_digits": bool(individual)}:
            return [_Digits(individual)]
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(use_regex)}:
            return [_Split(read_pattern(_BYTE_LEVEL))] if use_regex else []
        case {"type": "Split", "pattern": {"Regex": str(pattern)}, "behavior": "Isolated", "invert": False}:
            return [_Split(read_pattern(pattern))]
        case _:
            raise PatternUnknown(f"pre-tokenizer {node!r:.120}")
