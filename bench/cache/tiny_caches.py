"""Models of a few layers whose caches behave like those of today's models: sliding windows, recurrent layers.

What a server can do with its cache depends on the kind of its layers and on the ids, and not on the weights, so random
ones show the same checkpoints, rewinds and files as a real model, thousands of times faster. The tokenizer and the chat
template are the packaged model's. Names and shapes of tensors: llama.cpp, `src/llama-arch.cpp`.
"""

import random
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, Literal, cast

from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.testing.gguf import Float32, gguf_file
from leaf_sdk.vocab.gguf_head import read_head

Cache = Literal["gemma3", "lfm2", "qwen35"]
"""Architectures: a sliding window (Gemma 3 and 4, gpt-oss), short convolutions (LFM2), a delta net (Qwen 3.5 on)."""

CACHES: Final[tuple[Cache, ...]] = ("gemma3", "lfm2", "qwen35")
WINDOW: Final = 512
"""Tokens in the window of `gemma3`."""

_WIDTH, _INNER, _HEAD, _HEADS, _KV_HEADS = 64, 128, 16, 4, 2
_CONV, _STATE, _GROUPS, _RANK = 4, 16, 2, 8
_Sizes = dict[str, tuple[int, ...]]


def tiny_model(architecture: Cache, path: Path, template: str | None = None) -> Path:
    """Write a model of this architecture. `template`: its chat template; None: the packaged model's."""
    pairs: dict[str, object] = {
        "general.architecture": architecture,
        **{key: value for key, value in _tokenizer().items() if key.startswith("tokenizer.")},
    }
    if template is not None:
        pairs["tokenizer.chat_template"] = template
    layers, own = _layers(architecture)
    words = len(cast("list[str]", _tokenizer()["tokenizer.ggml.tokens"]))
    keys = {
        "vocab_size": words,
        "context_length": 32_768,
        "embedding_length": _WIDTH,
        "block_count": len(layers),
        "feed_forward_length": _INNER,
        "attention.layer_norm_rms_epsilon": Float32(1e-5),
        "rope.dimension_count": _HEAD,
        "rope.freq_base": Float32(10_000.0),
        "attention.head_count": _HEADS,
        "attention.head_count_kv": _KV_HEADS,
        "attention.key_length": _HEAD,
        "attention.value_length": _HEAD,
        **own,
    }
    pairs |= {f"{architecture}.{key}": value for key, value in keys.items()}
    sizes: _Sizes = {"token_embd.weight": (_WIDTH, words)}
    sizes["token_embd_norm.weight" if architecture == "lfm2" else "output_norm.weight"] = (_WIDTH,)
    for number, layer in enumerate(layers):
        sizes |= {f"blk.{number}.{name}": size for name, size in layer.items()}
    path.write_bytes(gguf_file(pairs, sizes, _weights))
    return path


@cache
def _tokenizer() -> Mapping[str, object]:
    with packaged_model().open("rb") as file:
        return dict(read_head(file.read(8 << 20)).pairs)


def _layers(architecture: Cache) -> tuple[list[_Sizes], dict[str, object]]:
    """The tensors of each layer, and the architecture's own keys."""
    norms = {"attn_norm.weight": (_WIDTH,), "ffn_norm.weight": (_WIDTH,)}
    forward = {
        "ffn_gate.weight": (_WIDTH, _INNER),
        "ffn_up.weight": (_WIDTH, _INNER),
        "ffn_down.weight": (_INNER, _WIDTH),
    }
    after = {"post_attention_norm.weight": (_WIDTH,)}
    if architecture == "gemma3":
        # Every sixth layer sees everything.
        layer = {**norms, **_attention(), **forward, **after, "post_ffw_norm.weight": (_WIDTH,)}
        return [layer] * 6, {"attention.sliding_window": WINDOW}
    if architecture == "lfm2":
        convolution = {
            "shortconv.conv.weight": (3, _WIDTH),
            "shortconv.in_proj.weight": (_WIDTH, 3 * _WIDTH),
            "shortconv.out_proj.weight": (_WIDTH, _WIDTH),
        }
        layers = [{**norms, **mixer, **forward} for mixer in (convolution, convolution, convolution, _attention())]
        return layers, {"shortconv.l_cache": 3, "attention.head_count_kv": [0, 0, 0, _KV_HEADS]}
    key, value = _STATE * _GROUPS, _STATE * _RANK
    delta = {
        "attn_qkv.weight": (_WIDTH, 2 * key + value),
        "attn_gate.weight": (_WIDTH, value),
        "ssm_conv1d.weight": (_CONV, 2 * key + value),
        "ssm_dt.bias": (_RANK,),
        "ssm_a": (_RANK,),
        "ssm_beta.weight": (_WIDTH, _RANK),
        "ssm_alpha.weight": (_WIDTH, _RANK),
        "ssm_norm.weight": (_STATE,),
        "ssm_out.weight": (value, _WIDTH),
    }
    del norms["ffn_norm.weight"]
    layers = [{**norms, **mixer, **forward, **after} for mixer in (delta, delta, delta, _attention(queries=2))]
    return layers, {
        "ssm.conv_kernel": _CONV,
        "ssm.inner_size": value,
        "ssm.state_size": _STATE,
        "ssm.time_step_rank": _RANK,
        "ssm.group_count": _GROUPS,
        "rope.dimension_sections": [2, 2, 2, 0],
        "full_attention_interval": 4,
    }


def _attention(queries: int = 1) -> _Sizes:
    width = _HEADS * _HEAD
    return {
        "attn_q.weight": (_WIDTH, width * queries),
        "attn_k.weight": (_WIDTH, _KV_HEADS * _HEAD),
        "attn_v.weight": (_WIDTH, _KV_HEADS * _HEAD),
        "attn_output.weight": (width, _WIDTH),
        "attn_q_norm.weight": (_HEAD,),
        "attn_k_norm.weight": (_HEAD,),
    }


def _weights(name: str, size: int) -> bytes:
    if "norm" in name:
        return struct.pack("<f", 1.0) * (size // 4)
    if name.endswith("ssm_a"):
        return b"".join(struct.pack("<f", -(number + 1) / _RANK) for number in range(size // 4))
    # Of each float the sign and all but the highest bits of the exponent are drawn: numbers up to 0.125, quickly.
    drawn = bytearray(random.Random(name).randbytes(size))
    drawn[3::4] = drawn[3::4].translate(bytes(0x3D | (byte & 0x80) for byte in range(256)))
    return bytes(drawn)
