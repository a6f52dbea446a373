r"""The table of pre-tokenizer names in GGUF files: how llama.cpp cuts text for each, where we cut it the same way.

A name is in the table only if ids made here equal those of a llama.cpp server over the whole test corpus, except for
characters that are newer than its Unicode tables (15). Left out on purpose: names that nobody has compared with the
engine yet, and those for which llama.cpp cuts with code of its own (`kimi-k2`, `afmoe`). Source: llama.cpp's
llama-vocab.cpp.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from leaf_sdk.errors import MapUnsupported

from .pre_tokenizers import GPT2, SMOLLM, PreTokenizer
from .programs import CJK

# Both cases spelled out, as llama.cpp does: `(?i:'s|...)` of a tokenizer.json also accepts the long s.
_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_LINES_AND_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _LINES_AND_BLANKS
_ASCII_MARK = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
# llama.cpp's stand-ins for `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]` and its lower-case twin: only a-z and A-Z have a case.
_HIGH, _LOW = r"(?:(?=\p{L})[^a-z])", r"(?:(?=\p{L})[^A-Z])"


def _cased(tail: str, digits: str) -> PreTokenizer:
    lead = r"[^\r\n\p{L}\p{N}]?"
    return PreTokenizer(
        rf"{lead}{_HIGH}*{_LOW}+{tail}|{lead}{_HIGH}+{_LOW}*{tail}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|"
        + _LINES_AND_BLANKS
    )


LLAMA3 = PreTokenizer(_WORDS + r"\p{N}{1,3}" + _MARKS)
QWEN2 = PreTokenizer(_WORDS + r"\p{N}" + _MARKS)
TEKKEN = _cased("", r"\p{N}")
GPT4O = _cased(_CONTRACTIONS + "?", r"\p{N}{1,3}")
DEEPSEEK3 = PreTokenizer(
    _ASCII_MARK + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _LINES_AND_BLANKS,
    before=(r"\p{N}{1,3}", CJK),
)


@dataclass(frozen=True, slots=True)
class GgufPre:
    """What a GGUF pre-tokenizer name implies: the cut, and whether a piece that is a token skips the merges."""

    pre_tokenizer: PreTokenizer
    ignore_merges: bool = False


_LLAMA3 = GgufPre(LLAMA3, ignore_merges=True)
_SMOLLM, _QWEN2, _GPT4O = GgufPre(SMOLLM), GgufPre(QWEN2), GgufPre(GPT4O)

GGUF_NAMES: Mapping[str, GgufPre] = {
    "gpt-2": GgufPre(GPT2),
    "smollm": _SMOLLM,
    "starcoder": _SMOLLM,
    "refact": _SMOLLM,
    "command-r": _SMOLLM,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": GgufPre(LLAMA3),
    "dbrx": GgufPre(LLAMA3),
    "glm4": GgufPre(LLAMA3),
    "qwen2": _QWEN2,
    "stablelm2": _QWEN2,
    "hunyuan": _QWEN2,
    "megrez": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "tekken": GgufPre(TEKKEN, ignore_merges=True),
    "gpt-4o": _GPT4O,
    "llama4": _GPT4O,
    "deepseek-v3": GgufPre(DEEPSEEK3),
    "hunyuan-dense": GgufPre(DEEPSEEK3),
}


def from_gguf(name: str) -> GgufPre:
    """Find what `tokenizer.ggml.pre` names.

    Raises:
        MapUnsupported: a name that is not in the table.
    """
    found = GGUF_NAMES.get(name)
    if found is None:
        what = f"tokenizer.ggml.pre {name!r}"
        raise MapUnsupported(
            f"{what} can't be reproduced exactly, expected one of {sorted(GGUF_NAMES)}; "
            "other ids would be wrong for the model",
            what=what,
        )
    return found
