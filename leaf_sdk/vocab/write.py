"""A tokenizer's parts to the bytes of a Codec map: canonical, so that one tokenizer has one map id on every machine.

The JSON is indented by two with no newline at the end, as published maps are, and its fields have a fixed order. What
the format has no field for goes into keys that begin with `x_` (docs/maps.md).
"""

import json
from collections.abc import Mapping
from typing import Any

from leaf_sdk.errors import NotAMap

from .blocks import ToolCalling, write_metaspace, write_tool_calling
from .pre_tokenizers import to_map
from .tokenizer import Tokenizer, by_id

_ORDER = (
    *("id", "version", "published_at", "vocab_size", "vocab", "encoder", "merges"),
    *("pre_tokenizer_pattern", "pre_tokenizer_program", "x_pre_tokenizer_stages"),
    *("byte_fallback_start", "byte_fallback_end", "x_metaspace", "x_algorithm", "x_scores"),
    *("x_ignore_merges", "x_normalizer", "x_added_tokens", "special_tokens", "tool_calling", "zstd_dictionaries"),
)

# Conventions by their markers, in the order of the reference's registry, with the formats of arguments and results.
# Those that its registry lacks are `custom`.
_CONVENTIONS = (
    ToolCalling("llama3", "<|python_tag|>", "<|eom_id|>", "python_args", "json"),
    ToolCalling("qwen25", "<tool_call>", "</tool_call>", "json", "json"),
    ToolCalling("deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "json", "json"),
    ToolCalling("custom", "<|python_start|>", "<|python_end|>", "python_args", "json"),
    ToolCalling("custom", "<|tools_prefix|>", "<|tools_suffix|>", "json", "json"),
)
# What a template writes between the same markers where the arguments are not JSON (Qwen3-Coder, GLM).
_NO_JSON = ("<function=", "<arg_key>")


def write_tokenizer(map_id: str, tokenizer: Tokenizer, *, chat_template: str | None = None) -> bytes:
    """Return the bytes of the map that describes a tokenizer.

    Args:
        map_id: `org/family`.
        tokenizer: its parts.
        chat_template: if given, a tool-calling convention is declared only where the template writes its marker.

    Raises:
        NotAMap: a token that is not Unicode text.
    """
    calls = _tool_calling(tokenizer, chat_template)
    fallback = tokenizer.byte_fallback
    return write_fields(
        {
            "id": map_id,
            "version": "2",
            "vocab_size": len(tokenizer.vocab),
            "vocab": by_id(tokenizer.vocab),
            "encoder": tokenizer.encoder,
            **({"merges": list(tokenizer.merges)} if tokenizer.algorithm == "bpe" else {}),
            **(to_map(tokenizer.pre_tokenizer) if tokenizer.pre_tokenizer else {}),
            **({"byte_fallback_start": fallback[0], "byte_fallback_end": fallback[1]} if fallback else {}),
            **_additive(tokenizer),
            "special_tokens": by_id(tokenizer.special_tokens),
            **({"tool_calling": write_tool_calling(calls)} if calls else {}),
        }
    )


def write_fields(fields: Mapping[str, Any]) -> bytes:
    """Return the canonical bytes of a map's fields: known ones in their order, then others as they come.

    Raises:
        NotAMap: text that has no UTF-8.
    """
    known = {key: fields[key] for key in _ORDER if key in fields}
    try:
        return json.dumps({**known, **fields}, ensure_ascii=False, indent=2).encode()
    except UnicodeEncodeError as error:
        raise NotAMap(
            f"a token of the tokenizer holds a lone surrogate, expected Unicode text ({error.reason})"
        ) from error


def convert_fields(fields: Mapping[str, Any], changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a map's fields as version 2, with some of them changed; unknown fields are kept.

    A version 1 map (`{"7": "text"}`) becomes a vocabulary of plain text, which decodes as it did.
    """
    vocab: dict[str, int] = fields.get("vocab") or {text: int(number) for number, text in fields["tokens"].items()}
    new: dict[str, Any] = {key: value for key, value in fields.items() if key != "tokens"} | dict(changed)
    new |= {"version": "2", "vocab": by_id(vocab), "vocab_size": len(vocab)}
    if "x_scores" in fields:
        # Scores follow the order of the tokens.
        scores = dict(zip(vocab, fields["x_scores"], strict=True))
        new["x_scores"] = [scores[token] for token in by_id(vocab)]
    return new


def _additive(tokenizer: Tokenizer) -> dict[str, Any]:
    unigram = tokenizer.algorithm != "bpe"
    return {
        **({"x_metaspace": write_metaspace(tokenizer.metaspace)} if tokenizer.metaspace else {}),
        **({"x_algorithm": tokenizer.algorithm, "x_scores": list(tokenizer.scores)} if unigram else {}),
        **({"x_ignore_merges": True} if tokenizer.ignore_merges else {}),
        **({"x_normalizer": tokenizer.normalizer} if tokenizer.normalizer else {}),
        **({"x_added_tokens": list(tokenizer.added_tokens)} if tokenizer.added_tokens else {}),
    }


def _tool_calling(tokenizer: Tokenizer, chat_template: str | None) -> ToolCalling | None:
    """Choose a convention whose markers are both special tokens, and that the chat template, if known, writes."""
    for known in _CONVENTIONS:
        written = chat_template is None or known.start in chat_template
        if chat_template and known.args_format == "json" and any(each in chat_template for each in _NO_JSON):
            continue
        if written and {known.start, known.end} <= tokenizer.special_tokens.keys():
            return known
    return None
