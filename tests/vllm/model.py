"""The packaged GGUF model as a folder in Hugging Face's form, which vLLM loads: weights, tokenizer, chat template.

Run by the Python of vLLM's own environment (`make vllm-check`): `python model.py MODEL.gguf FOLDER`. It knows one
architecture, Llama's, and one pre-tokenizer, SmolLM2's.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from gguf import GGUFReader, dequantize
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

_CONTROL = 3
_WEIGHTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(source: Path, folder: Path) -> None:
    """Write the folder."""
    reader = GGUFReader(source)
    folder.mkdir(parents=True, exist_ok=True)

    def field(name: str) -> Any:
        return reader.fields[name].contents()

    heads = {"q": field("llama.attention.head_count"), "k": field("llama.attention.head_count_kv")}
    save_file(
        {
            name: tensor
            for each in reader.tensors
            for name, tensor in [_weight(each.name, torch.from_numpy(dequantize(each.data, each.tensor_type)), heads)]
        },
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    tokens: list[str] = field("tokenizer.ggml.tokens")
    eos, bos = (field(f"tokenizer.ggml.{which}_token_id") for which in ("eos", "bos"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        "vocab_size": len(tokens),
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads["q"],
        "num_key_value_heads": heads["k"],
        "max_position_embeddings": field("llama.context_length"),
        "rms_norm_eps": field("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": field("llama.rope.freq_base"),
        "tie_word_embeddings": True,
        "bos_token_id": bos,
        "eos_token_id": eos,
    }
    _write(folder / "config.json", config)
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": tokens[bos],
            "eos_token": tokens[eos],
            "chat_template": field("tokenizer.chat_template"),
            "clean_up_tokenization_spaces": False,
        },
    )
    types: list[int] = field("tokenizer.ggml.token_type")
    _tokenizer(tokens, types, field("tokenizer.ggml.merges")).save(str(folder / "tokenizer.json"))


def _weight(name: str, tensor: torch.Tensor, heads: dict[str, int]) -> tuple[str, torch.Tensor]:
    tensor = tensor.to(torch.bfloat16)
    if not name.startswith("blk."):
        known = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
        return known[name], tensor.contiguous()
    _, layer, which, kind = name.split(".")
    if which in ("attn_q", "attn_k"):
        # GGUF keeps the two halves of each rotation side by side.
        count = heads[which[-1]]
        shape = tensor.shape
        tensor = tensor.reshape(count, shape[0] // count // 2, 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
    return f"model.layers.{layer}.{_WEIGHTS[which]}.{kind}", tensor.contiguous()


def _tokenizer(tokens: list[str], types: list[int], merges: list[str]) -> Tokenizer:
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    tokenizer = Tokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, types, strict=True) if kind == _CONTROL]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in control])
    return tokenizer


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
