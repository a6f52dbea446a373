"""A map's parts to the function that returns a text's ids: the one module that builds the encoders of `tokenizers`.

The text is ordinary text: special tokens are kept out of the tables that encode, so no spelling reaches one. Ordinary
added tokens (runs of blanks, HTML tags; see `added`) are matched first. Objects are built when the first text is
encoded, so that importing and decoding stay cheap.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from leaf_sdk.errors import MapUnsupported

from .collector import collector_held
from .known_pieces import KnownPieces
from .pre_tokenizers import PreTokenizer, to_tokenizers
from .tokenizer import Algorithm, Metaspace, Normalizer
from .unigram import FloatUnigram

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.models import Model

SPACE = "▁"
Merges = Sequence[tuple[str, str]]
Encode = Callable[[str], list[int]]
"""Returns the ids of a text that is already spaced; raises TypeError for a lone surrogate."""


def byte_level_encoder(
    vocab: dict[str, int],
    merges: Merges,
    pre_tokenizer: PreTokenizer,
    *,
    special: Collection[str],
    normalizer: Normalizer | None,
    ignore_merges: bool,
    added: Collection[str],
) -> Encode:
    """Build the encoder of a byte-level vocabulary; `vocab` holds no special token, and merges with one are not used.

    Raises:
        MapUnsupported: merges or a pattern that `tokenizers` refuses.
    """
    from tokenizers import normalizers
    from tokenizers.models import BPE

    tokenizer = _tokenizer(
        lambda kept: BPE(vocab=vocab, merges=kept, ignore_merges=ignore_merges), merges, special, added
    )
    tokenizer.pre_tokenizer = to_tokenizers(pre_tokenizer)
    if normalizer is not None:
        kinds = {"NFC": normalizers.NFC, "NFD": normalizers.NFD, "NFKC": normalizers.NFKC, "NFKD": normalizers.NFKD}
        tokenizer.normalizer = kinds[normalizer]()
    return KnownPieces(tokenizer, pre_tokenizer.stages, added).encode


def metaspace_encoder(
    vocab: dict[str, int],
    merges: Merges,
    metaspace: Metaspace,
    *,
    special: Collection[str],
    algorithm: Algorithm,
    scores: Mapping[str, float],
    byte_ids: range,
    added: Collection[str],
    ignore_merges: bool,
) -> Encode:
    """Build the encoder of a metaspace vocabulary; it takes text in which spaces are already `▁` (see `spaced`).

    Raises:
        MapUnsupported: merges that `tokenizers` refuses.
    """
    from tokenizers import normalizers, pre_tokenizers
    from tokenizers.models import BPE

    if algorithm == "unigram32":
        pieces = {token: (vocab[token], score) for token, score in scores.items() if token in vocab}
        return FloatUnigram({t: p for t, p in pieces.items() if p[0] not in byte_ids}, byte_ids).encode
    tokenizer = _tokenizer(
        (lambda _: _unigram(vocab, scores))
        if algorithm == "unigram"
        else lambda kept: BPE(vocab=vocab, merges=kept, byte_fallback=True, ignore_merges=ignore_merges),
        merges,
        special,
        added,
    )
    if added:
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    if metaspace.split:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(SPACE, "merged_with_next")
    return _encode_with(tokenizer)


def spaced(text: str, metaspace: Metaspace, *, first: bool, keep_spaces: bool) -> str:
    """Return a text as a metaspace vocabulary spells it.

    Args:
        text: ordinary text.
        metaspace: what happens to spaces.
        first: whether nothing precedes the text.
        keep_spaces: leave it to the encoder to turn spaces into `▁`, after it has matched added tokens.
    """
    if metaspace.collapse:
        text = re.sub(" +", " ", text.strip(" "))
    if not text:
        return text
    text = text if keep_spaces else text.replace(" ", SPACE)
    present = metaspace.prefix == "missing" and text.startswith((SPACE, " "))
    if metaspace.prefix != "never" and not present and (first or not metaspace.first_only):
        text = SPACE + text
    return text.rstrip(SPACE) if metaspace.collapse else text


def _tokenizer(
    build: "Callable[[Merges], Model]", merges: Merges, special: Collection[str], added: Collection[str]
) -> "Tokenizer":
    from tokenizers import AddedToken, Tokenizer

    with collector_held():
        try:
            tokenizer = Tokenizer(_build(build, merges, special))
        except Exception as error:  # the library raises a bare Exception for a vocabulary that it refuses
            raise MapUnsupported(
                f"the map's merges can't be used ({error}); get the map from its publisher again", what="merges"
            ) from error
    matched = [AddedToken(token, normalized=False, special=False) for token in added]
    tokenizer.add_tokens(matched)  # pyright: ignore[reportUnknownMemberType] - the stub says a bare list
    return tokenizer


def _build(build: "Callable[[Merges], Model]", merges: Merges, special: Collection[str]) -> "Model":
    try:
        return build(list(merges))
    except Exception:  # noqa: BLE001 - the library raises nothing narrower; a fault outside the merges is raised again below
        # A merge through a special token would let ordinary text reach it; without the token's entry it is refused.
        known = frozenset(special)
        return build([(a, b) for a, b in merges if known.isdisjoint((a, b, a + b))])


def _unigram(vocab: Mapping[str, int], scores: Mapping[str, float]) -> "Model":
    """Build the model over all ids: special and missing ones get a name that no spaced text can contain."""
    from tokenizers.models import Unigram

    names = {token_id: token for token, token_id in vocab.items()}
    floor = min(scores.values(), default=0.0)
    rows = [(names[i], scores[names[i]]) if i in names else (f" {i}", floor) for i in range(max(names, default=0) + 1)]
    return Unigram(rows, unk_id=next((i for i in range(len(rows)) if i not in names), None), byte_fallback=True)


def _encode_with(tokenizer: "Tokenizer") -> Encode:
    encode = tokenizer.encode
    return lambda text: encode(text, add_special_tokens=False).ids
