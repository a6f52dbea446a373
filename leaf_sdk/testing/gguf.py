"""Key-value pairs to the head of a GGUF file, to test readers of model files without a model.

Written from the GGUF specification and not from the reader, so that the two don't share mistakes. Whole numbers become
uint32 (int32 inside a list), floats float64 (float32 inside a list, or as `Float32`). `gguf_file` adds tensors;
`gguf_model` those of a meaningless model with one layer, which llama.cpp loads, so that its tokenizer can be asked.
Knows nothing of tokenizers.
"""

import io
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import cast

_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY, _FLOAT64 = 4, 5, 6, 7, 8, 9, 12
_ALIGNMENT = 32
WIDTH = 32


class Float32(float):
    """A number that is written in single precision."""


def gguf_head(pairs: Mapping[str, object], *, version: int = 3) -> bytes:
    """Return the bytes of a file with these pairs and no tensors; lists hold strings, whole numbers or lists."""
    return _head(pairs, version, tensors=0)


def gguf_model(pairs: Mapping[str, object], weights: Callable[[int], bytes] = bytes) -> bytes:
    """Return the bytes of a model with this tokenizer and one layer: as small as llama.cpp loads.

    Args:
        pairs: the tokenizer, and anything else for the head.
        weights: makes that many bytes of little-endian floats; zeros by default.
    """
    vocabulary = len(cast("list[str]", pairs["tokenizer.ggml.tokens"]))
    sizes = {"token_embd.weight": (WIDTH, vocabulary), "output_norm.weight": (WIDTH,)}
    sizes |= {f"blk.0.{name}_norm.weight": (WIDTH,) for name in ("attn", "ffn")}
    square = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    sizes |= {f"blk.0.{name}.weight": (WIDTH, WIDTH) for name in square}
    data = io.BytesIO(weights(sum(4 * math.prod(each) for each in sizes.values())))
    pairs = {**_ARCHITECTURE, "llama.vocab_size": vocabulary, **pairs}
    return gguf_file(pairs, sizes, lambda _, size: data.read(size))


def gguf_file(
    pairs: Mapping[str, object], sizes: Mapping[str, Sequence[int]], weights: Callable[[str, int], bytes]
) -> bytes:
    """Return the bytes of a file with tensors of single precision.

    Args:
        pairs: the head.
        sizes: dimensions of each tensor by its name, the one whose numbers lie together first.
        weights: makes that many bytes of little-endian floats for the tensor of a name.
    """
    infos, offset, data = b"", 0, b""
    for name, dimensions in sizes.items():
        infos += gguf_string(name) + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        infos += struct.pack("<IQ", 0, offset)
        size = 4 * math.prod(dimensions)
        padding = bytes(-size % _ALIGNMENT)
        offset += size + len(padding)
        data += weights(name, size) + padding
    head = _head(pairs, 3, tensors=len(sizes)) + infos
    return head + bytes(-len(head) % _ALIGNMENT) + data


_ARCHITECTURE: Mapping[str, object] = {
    "general.architecture": "llama",
    "llama.context_length": 512,
    "llama.embedding_length": WIDTH,
    "llama.block_count": 1,
    "llama.feed_forward_length": WIDTH,
    "llama.attention.head_count": 1,
    "llama.attention.layer_norm_rms_epsilon": Float32(1e-5),
}


def _head(pairs: Mapping[str, object], version: int, *, tensors: int) -> bytes:
    body = b"".join(gguf_string(key) + _value(item) for key, item in pairs.items())
    return b"GGUF" + struct.pack("<IQQ", version, tensors, len(pairs)) + body


def gguf_string(text: str) -> bytes:
    """Return a string as GGUF writes it: its length in bytes, then its UTF-8."""
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(item: object) -> bytes:
    match item:
        case bool():
            return struct.pack("<I?", _BOOL, item)
        case int():
            return struct.pack("<II", _UINT32, item)
        case Float32():
            return struct.pack("<If", _FLOAT32, item)
        case float():
            return struct.pack("<Id", _FLOAT64, item)
        case str():
            return struct.pack("<I", _STRING) + gguf_string(item)
        case list():
            return struct.pack("<I", _ARRAY) + _array(cast("list[object]", item))
        case _:
            raise TypeError(f"{item!r} has no GGUF type here, expected bool, int, float, str or a list")


def _array(items: list[object]) -> bytes:
    if items and isinstance(items[0], list):
        return struct.pack("<IQ", _ARRAY, len(items)) + b"".join(_array(cast("list[object]", each)) for each in items)
    if items and isinstance(items[0], int):
        return struct.pack(f"<IQ{len(items)}i", _INT32, len(items), *items)
    if items and isinstance(items[0], float):
        return struct.pack(f"<IQ{len(items)}f", _FLOAT32, len(items), *items)
    return struct.pack("<IQ", _STRING, len(items)) + b"".join(gguf_string(str(each)) for each in items)
