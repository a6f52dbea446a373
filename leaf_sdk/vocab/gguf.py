"""The head of a GGUF file to the tokenizer that it carries; tensors are never touched.

A GGUF file opens with key-value pairs, and llama.cpp's tokenizer is among them: the tokens, their types, the merges,
the name of the pre-tokenizer, the chat template. The caller passes the file as a memory map, so that a model of many
gigabytes costs only its first megabytes. `gguf_head.py` reads the pairs. Knows nothing of Codec maps: `build` makes one
from this.

Source: the GGUF specification, versions 2 and 3 (little-endian).
"""

from dataclasses import dataclass, field
from typing import cast

from leaf_sdk.errors import NotAMap

from .gguf_head import Value, read_head

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
"""llama.cpp's token types."""


@dataclass(frozen=True, slots=True)
class GgufTokenizer:
    """What a GGUF file says about its tokenizer, unchanged."""

    model: str
    """`tokenizer.ggml.model`: "gpt2" for byte-level BPE, "llama" for SentencePiece ..."""
    pre: str | None
    tokens: list[str]
    token_types: list[int]
    """One per token; all NORMAL where the file has none."""
    merges: list[str]
    chat_template: str | None
    name: str | None
    """`general.basename`, else `general.name`."""
    organization: str | None
    bos_id: int | None
    eos_id: int | None
    add_bos: bool | None
    scores: list[float] = field(default_factory=list[float])
    """One per token in a SentencePiece vocabulary; empty where the file has none."""
    add_space_prefix: bool | None = None


def read_gguf_tokenizer(data: bytes | memoryview) -> GgufTokenizer:
    """Read the tokenizer from a GGUF file's first bytes (or from the whole file, preferably as a memory map).

    Raises:
        NotAMap: not a GGUF file, or one without a tokenizer.
        MapTruncated: the bytes end inside the head.
        MapUnsupported: a version of GGUF that we don't read (1, or big-endian).
    """
    pairs = read_head(data).pairs
    if "tokenizer.ggml.tokens" not in pairs:
        raise NotAMap("the GGUF file holds no tokenizer (tokenizer.ggml.tokens is missing); use a model's file")
    tokens = _strings(pairs, "tokenizer.ggml.tokens")
    return GgufTokenizer(
        model=_text(pairs, "tokenizer.ggml.model") or "",
        pre=_text(pairs, "tokenizer.ggml.pre"),
        tokens=tokens,
        token_types=_types(pairs, len(tokens)),
        merges=_strings(pairs, "tokenizer.ggml.merges"),
        chat_template=_text(pairs, "tokenizer.chat_template"),
        name=_text(pairs, "general.basename") or _text(pairs, "general.name"),
        organization=_text(pairs, "general.organization"),
        bos_id=_whole(pairs, "tokenizer.ggml.bos_token_id"),
        eos_id=_whole(pairs, "tokenizer.ggml.eos_token_id"),
        add_bos=_flag(pairs, "tokenizer.ggml.add_bos_token"),
        scores=_floats(pairs, "tokenizer.ggml.scores"),
        add_space_prefix=_flag(pairs, "tokenizer.ggml.add_space_prefix"),
    )


def _strings(pairs: dict[str, Value], key: str) -> list[str]:
    value = pairs.get(key, [])
    if not isinstance(value, list) or (value and not isinstance(value[0], str)):
        raise NotAMap(f"{key} is {type(value).__name__}, expected a list of strings: the file is damaged")
    return cast("list[str]", value)


def _floats(pairs: dict[str, Value], key: str) -> list[float]:
    value = pairs.get(key, [])
    if not isinstance(value, list) or not {*map(type, value)} <= {float, int}:
        raise NotAMap(f"{key} is {type(value).__name__}, expected a list of numbers: the file is damaged")
    return cast("list[float]", value)


def _types(pairs: dict[str, Value], count: int) -> list[int]:
    value = pairs.get("tokenizer.ggml.token_type", [NORMAL] * count)
    if not isinstance(value, list) or len(value) != count:
        raise NotAMap(
            f"tokenizer.ggml.token_type does not hold one type for each of {count} tokens: the file is damaged"
        )
    return cast("list[int]", value)


def _text(pairs: dict[str, Value], key: str) -> str | None:
    value = pairs.get(key)
    return value if isinstance(value, str) else None


def _whole(pairs: dict[str, Value], key: str) -> int | None:
    value = pairs.get(key)
    return value if type(value) is int else None


def _flag(pairs: dict[str, Value], key: str) -> bool | None:
    value = pairs.get(key)
    return value if isinstance(value, bool) else None
