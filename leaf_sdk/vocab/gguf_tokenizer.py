"""What a GGUF file says about its tokenizer, to the parts of a tokenizer as llama.cpp runs it.

Two of llama.cpp's kinds are supported: `gpt2` (byte-level BPE, the cut found by its name) and `llama` (SentencePiece
BPE by scores). A map of a GGUF file describes what the engine does, which normalizes nothing. llama.cpp matches
user-defined tokens in any text; here they are special, except for blanks and HTML tags.
"""

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
    raise inexact(f"tokenizer.ggml.model {gguf.model!r}", "'gpt2' (byte-level BPE) or 'llama' (SentencePiece BPE)")


def _byte_level(gguf: GgufTokenizer) -> Tokenizer:
    pre = from_gguf(gguf.pre or "default")
    vocab = _vocab(gguf)
    added = {token: vocab[token] for token in _of_types(gguf, {USER_DEFINED}) if is_ordinary(token, special=False)}
    return Tokenizer(
        vocab=vocab,
        special_tokens={token: vocab[token] for token in _of_types(gguf, _SPECIAL_TYPES) if token not in added},
        merges=gguf.merges,
        pre_tokenizer=pre.pre_tokenizer,
        ignore_merges=pre.ignore_merges,
        added_tokens=list(added),
    )


def _sentencepiece(gguf: GgufTokenizer) -> Tokenizer:
    if len(gguf.scores) != len(gguf.tokens):
        raise NotAMap(
            f"tokenizer.ggml.scores holds {len(gguf.scores)} entries, expected {len(gguf.tokens)}: the file is damaged"
        )
    vocab = _vocab(gguf)
    added = [token for token in _of_types(gguf, {USER_DEFINED}) if is_ordinary(token, special=False)]
    prefix = gguf.add_space_prefix is not False
    if added and prefix:
        raise inexact(f"added token {added[0]!r} with a space before the text", "only one of the two")
    normal = set(_of_types(gguf, {NORMAL}))
    scores = {token: score for token, score in zip(gguf.tokens, gguf.scores, strict=True) if token in normal}
    special = _SPECIAL_TYPES - {BYTE}
    return Tokenizer(
        vocab=vocab,
        special_tokens={token: vocab[token] for token in _of_types(gguf, special) if token not in added},
        merges=ranked_merges(scores).merges,
        encoder="metaspace",
        metaspace=Metaspace("always" if prefix else "never"),
        byte_fallback=byte_range(vocab),
        added_tokens=added,
    )


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
