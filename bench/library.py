"""A map's tokenizer with the `tokenizers` library alone: what encoding costs everybody else.

Without `leaf_sdk.vocab.known_pieces` in front of it; special tokens are ordinary ones to it, so a text must spell none.
"""

from collections.abc import Callable

from tokenizers import Tokenizer
from tokenizers.models import BPE

from leaf_sdk.vocab import TokenMap
from leaf_sdk.vocab.pre_tokenizers import to_tokenizers


def library_of(token_map: TokenMap) -> Callable[[str], list[int]]:
    """Return its encode function, for a byte-level map without a normalizer."""
    if token_map.pre_tokenizer is None or token_map.normalizer is not None:
        raise SystemExit(f"{token_map.id!r} is cut or normalized in a way that is not known here; nothing was measured")
    merges = [(left, right) for left, right in token_map.merges]
    tokenizer = Tokenizer(BPE(vocab=dict(token_map.vocab), merges=merges))
    tokenizer.pre_tokenizer = to_tokenizers(token_map.pre_tokenizer)
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
