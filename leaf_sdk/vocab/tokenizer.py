"""The parts of a tokenizer, from whatever file: what every reader of a model's file returns and a map is made of.

Only data. Readers (`hugging_face`, `gguf_tokenizer`, `tiktoken_file`, `sentencepiece_model`) make one or refuse;
`write` turns it into a map's bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from .pre_tokenizers import PreTokenizer

Encoder = Literal["byte_level", "metaspace"]
"""How a raw token spells its bytes: in GPT-2's alphabet, or as text with `▁` for a space and `<0x0A>` for a byte."""

Algorithm = Literal["bpe", "unigram", "unigram32"]
"""Ranked merges; or the best-scored path, added up in doubles as `tokenizers` does, or in floats as `sentencepiece`."""

Normalizer = Literal["NFC", "NFD", "NFKC", "NFKD"]


@dataclass(frozen=True, slots=True)
class Metaspace:
    """What happens to spaces before a metaspace vocabulary is looked up; every space that stays becomes `▁`."""

    prefix: Literal["never", "always", "missing"] = "always"
    """Whether a `▁` is put before a text: never, always, or only where the text does not begin with one."""
    first_only: bool = False
    """Whether the prefix goes only before the text, not before what follows a special token in a template."""
    split: bool = False
    """Whether text is cut before each `▁`, so that no token spans that place."""
    collapse: bool = False
    """Whether spaces at both ends are dropped and runs of spaces become one."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """One tokenizer's parts. Metaspace vocabularies hold all 256 byte tokens, from `byte_fallback` on."""

    vocab: Mapping[str, int]
    """Raw tokens, including special ones, in the order of their ids."""
    special_tokens: Mapping[str, int]
    merges: Sequence[str] = ()
    """`left right` lines; the first is applied first."""
    pre_tokenizer: PreTokenizer | None = None
    ignore_merges: bool = False
    normalizer: Normalizer | None = None
    encoder: Encoder = "byte_level"
    algorithm: Algorithm = "bpe"
    metaspace: Metaspace | None = None
    scores: Sequence[float] = ()
    """Unigram: the logarithm of each token's probability, in the order of `vocab`."""
    byte_fallback: tuple[int, int] | None = None
    """The ids of `<0x00>` and of `<0xFF>`."""
    added_tokens: Sequence[str] = ()
    """Added tokens that ordinary text may spell; they are matched before anything else."""


def by_id(vocab: Mapping[str, int]) -> dict[str, int]:
    """Return a vocabulary in the order of its ids."""
    return dict(sorted(vocab.items(), key=lambda entry: entry[1]))
