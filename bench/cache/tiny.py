"""A model of one layer and random weights with another's vocabulary: with it a real server answers 50,000 ids a second.

Turns a GGUF file's tokenizer into the bytes of such a model. What the model writes is meaningless, but it depends on
the whole prompt, so that a cache that holds somebody else's ids is noticed.
"""

import random
from array import array
from collections.abc import Iterable
from typing import Final

from leaf_sdk.testing.gguf import WIDTH, gguf_model
from leaf_sdk.vocab.gguf import read_gguf_tokenizer

_CONTEXT: Final = 131_072
_SPREAD: Final = 0.5
_FLOAT: Final = 4


def tiny_model(data: bytes, seed: int = 1, unlikely: Iterable[int] = ()) -> bytes:
    """Return the model.

    Args:
        data: the file whose vocabulary it has.
        seed: of its weights.
        unlikely: ids that it writes only where a grammar leaves no other: they are never among its best.
    """
    read = read_gguf_tokenizer(data)
    pairs: dict[str, object] = {
        "general.name": "tiny",
        "llama.context_length": _CONTEXT,
        "tokenizer.ggml.model": read.model,
        "tokenizer.ggml.tokens": read.tokens,
        "tokenizer.ggml.token_type": read.token_types,
        "tokenizer.ggml.merges": read.merges,
        "tokenizer.ggml.bos_token_id": read.bos_id or 0,
        "tokenizer.ggml.eos_token_id": read.eos_id or 0,
        "tokenizer.ggml.add_bos_token": False,
    }
    if read.pre is not None:
        pairs["tokenizer.ggml.pre"] = read.pre
    if read.chat_template is not None:
        pairs["tokenizer.chat_template"] = read.chat_template
    drawn = random.Random(seed)

    def weights(size: int) -> bytes:
        made = array("f", (drawn.gauss(0, _SPREAD) for _ in range(size // _FLOAT)))
        # A row for each id comes first. One of zeros gives its id the mean of all scores.
        for token_id in unlikely:
            made[token_id * WIDTH : (token_id + 1) * WIDTH] = array("f", bytes(WIDTH * _FLOAT))
        return made.tobytes()

    return gguf_model(pairs, weights)
