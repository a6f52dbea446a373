"""What a GGUF file says about its tokenizer, to the parts of a tokenizer as llama.cpp runs it.

Three of llama.cpp's kinds are supported: `gpt2` (byte-level BPE, the cut found by its name), `llama` (SentencePiece
BPE by scores) and `gemma4` (a SentencePiece vocabulary with ranked merges). A map of a GGUF file describes what the
engine does, which normalizes nothing. llama.cpp matches user-defined tokens in any text; here they are special, except
for blanks and HTML tags.
"""

from collections.abc import Collection, Mapping

from leaf_sdk.errors import NotAMap

from .added import is_ordinary
from .fields import inexact
from .gguf import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, GgufTokenizer
from .gguf_names import from_gguf
from .metaspace_json import byte_range
from .score_merges import ranked_merges
from .tokenizer import Metaspace, Tokenizer

_SPECIAL_TYPES = frozenset({UNKNOWN, CONTROL, USER_DEFINED, BYTE})


def read_gguf(gguf: GgufTokenizer) -> Tokenizer:
    """Read the parts of a GGUF file's tokenizer.

    Raises:
        MapUnsupported: another kind, or a part that we don't reproduce.
        NotAMap: the file is damaged.
    """
    if gguf.model == "gpt2":
        return _byte_level(gguf)
    if gguf.model == "llama":
        return _sentencepiece(gguf)
    if gguf.model == "gemma4":
        return _merged_sentencepiece(gguf)
    raise inexact(
        f"tokenizer.ggml.model {gguf.model!r}",
        "'gpt2' (byte-level BPE), 'llama' (SentencePiece BPE) or 'gemma4' (SentencePiece BPE with merges)",
    )


def _byte_level(gguf: GgufTokenizer) -> Tokenizer:
    pre = from_gguf(gguf.pre or "default")
    vocab, added = _vocab(gguf), _ordinary_added(gguf)
    return Tokenizer(
        vocab=vocab,
        special_tokens=_special(gguf, vocab, _SPECIAL_TYPES, added),
        merges=gguf.merges,
        pre_tokenizer=pre.pre_tokenizer,
        ignore_merges=pre.ignore_merges,
        added_tokens=added,
    )


def _sentencepiece(gguf: GgufTokenizer) -> Tokenizer:
    if len(gguf.scores) != len(gguf.tokens):
        raise NotAMap(
            f"tokenizer.ggml.scores holds {len(gguf.scores)} entries, expected {len(gguf.tokens)}: the file is damaged"
        )
    vocab, added = _vocab(gguf), _ordinary_added(gguf)
    prefix = gguf.add_space_prefix is not False
    if added and prefix:
        raise inexact(f"added token {added[0]!r} with a space before the text", "only one of the two")
    normal = set(_of_types(gguf, {NORMAL}))
    scores = {token: score for token, score in zip(gguf.tokens, gguf.scores, strict=True) if token in normal}
    return Tokenizer(
        vocab=vocab,
        special_tokens=_special(gguf, vocab, _SPECIAL_TYPES - {BYTE}, added),
        merges=ranked_merges(scores).merges,
        encoder="metaspace",
        metaspace=Metaspace("always" if prefix else "never"),
        byte_fallback=byte_range(vocab),
        added_tokens=added,
    )


def _merged_sentencepiece(gguf: GgufTokenizer) -> Tokenizer:
    vocab, added = _vocab(gguf), _ordinary_added(gguf)
    return Tokenizer(
        vocab=vocab,
        special_tokens=_special(gguf, vocab, _SPECIAL_TYPES - {BYTE}, added),
        merges=[merge for merge in gguf.merges if _within_a_line(merge)],
        encoder="metaspace",
        metaspace=Metaspace("never"),
        byte_fallback=byte_range(vocab),
        added_tokens=added,
    )


def _within_a_line(merge: str) -> bool:
    """Whether a merge joins text of one line, or line ends only: llama.cpp cuts between the two."""
    return "\n" not in merge or not merge.replace("\n", "").strip(" ")


def _ordinary_added(gguf: GgufTokenizer) -> list[str]:
    """Added tokens that ordinary text may spell."""
    return [token for token in _of_types(gguf, {USER_DEFINED}) if is_ordinary(token, special=False)]


def _special(
    gguf: GgufTokenizer, vocab: Mapping[str, int], kinds: frozenset[int], added: Collection[str]
) -> dict[str, int]:
    ordinary = set(added)
    return {token: vocab[token] for token in _of_types(gguf, kinds) if token not in ordinary}


def _vocab(gguf: GgufTokenizer) -> dict[str, int]:
    """Return the tokens with their ids, without unused ones: those pad the matrix, and no text becomes one."""
    entries = [
        (token, token_id)
        for token_id, (token, kind) in enumerate(zip(gguf.tokens, gguf.token_types, strict=True))
        if kind != UNUSED
    ]
    vocab = dict(entries)
    if len(vocab) != len(entries):
        raise NotAMap("the GGUF file lists one token twice, expected one id per token")
    return vocab


def _of_types(gguf: GgufTokenizer, kinds: set[int] | frozenset[int]) -> list[str]:
    return [token for token, kind in zip(gguf.tokens, gguf.token_types, strict=True) if kind in kinds]
