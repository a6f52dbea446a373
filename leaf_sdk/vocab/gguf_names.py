r"""The table of pre-tokenizer names in GGUF files: how llama.cpp cuts text for each, where we cut it the same way.

A name is in the table only if ids made here equal those of a llama.cpp server over the whole test corpus, except for
characters that are newer than its Unicode tables (15). Left out: cuts whose time grows with the square of a number's
length (`afmoe`, `tiny_aya`, `superbpe`), those that differ on rare blanks (`deepseek-coder`, `deepseek-llm`), and those
that nobody has compared with the engine. Source: llama.cpp's llama-vocab.cpp.
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
QWEN35 = PreTokenizer(
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|" + _LINES_AND_BLANKS
)
TEKKEN = _cased("", r"\p{N}")
GPT4O = _cased(_CONTRACTIONS + "?", r"\p{N}{1,3}")
_LETTERS_AND_MARKS = _ASCII_MARK + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"
DEEPSEEK3 = PreTokenizer(_LETTERS_AND_MARKS + r"[\r\n]*|" + _LINES_AND_BLANKS, before=(r"\p{N}{1,3}", CJK))
_SPARK = PreTokenizer(r"\p{N}", before=(r"\p{N}{1,3}", CJK, _LETTERS_AND_MARKS + r"|[\r\n]|\s+(?!\S)|\s+"))
_BAILING = PreTokenizer(
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = PreTokenizer(_WORDS + r"\p{N}| ?[^\s\p{L}\p{N}\r\n]+|" + _LINES_AND_BLANKS)
_NO_CONTRACTIONS = PreTokenizer(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _MARKS)
_LAGUNA = PreTokenizer(_WORDS + r"\p{N}" + _MARKS, before=(r"[^\n]+|[\n]+",))
_EXAONE_MOE = PreTokenizer(
    _CONTRACTIONS
    + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_MINICPM5 = PreTokenizer(_WORDS + r"\p{N}+" + _MARKS, before=(r"\p{N}{1,3}",))
_FALCON = PreTokenizer("[0-9][0-9][0-9]", before=(r"[\p{P}$+<=>^~|`]+", GPT2.pattern))
_DEFAULT = PreTokenizer("[0-9][0-9][0-9]", before=(r"[\p{P}$+<=>^~|]+", GPT2.pattern, r"\p{N}+"))
# llama.cpp cuts for Kimi K2 with code of its own, which takes letters of all cases alike; Han as its ranges have it.
_HAN = "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f]"
_KIMI_K2 = PreTokenizer(
    rf"{_HAN}+|[^\r\n\p{{L}}\p{{N}}]?(?:(?!{_HAN})\p{{L}})+{_CONTRACTIONS}?|\p{{N}}{{1,3}}" + _MARKS
)


@dataclass(frozen=True, slots=True)
class GgufPre:
    """What a GGUF pre-tokenizer name implies: the cut, and whether a piece that is a token skips the merges."""

    pre_tokenizer: PreTokenizer
    ignore_merges: bool = False


GGUF_NAMES: Mapping[str, GgufPre] = {
    **dict.fromkeys(
        (
            "gpt-2",
            "phi-2",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "exaone4",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
        ),
        GgufPre(GPT2),
    ),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"), GgufPre(SMOLLM)
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        GgufPre(LLAMA3, ignore_merges=True),
    ),
    **dict.fromkeys(("smaug-bpe", "dbrx", "glm4", "chatglm-bpe"), GgufPre(LLAMA3)),
    **dict.fromkeys(
        ("qwen2", "stablelm2", "hunyuan", "megrez", "deepseek-r1-qwen", "kormo", "f2llmv2", "solar-open", "grok-2"),
        GgufPre(QWEN2),
    ),
    "qwen35": GgufPre(QWEN35),
    "tekken": GgufPre(TEKKEN, ignore_merges=True),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), GgufPre(GPT4O)),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), GgufPre(DEEPSEEK3)),
    "spark2_5": GgufPre(_SPARK),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), GgufPre(_BAILING)),
    "seed-coder": GgufPre(_SEED),
    "ufakzeka": GgufPre(_NO_CONTRACTIONS),
    "laguna": GgufPre(_LAGUNA),
    "exaone-moe": GgufPre(_EXAONE_MOE),
    "minicpm5": GgufPre(_MINICPM5, ignore_merges=True),
    "falcon": GgufPre(_FALCON),
    "default": GgufPre(_DEFAULT),
    "kimi-k2": GgufPre(_KIMI_K2),
}


def from_gguf(name: str) -> GgufPre:
    """Find what `tokenizer.ggml.pre` names. Raises `MapUnsupported`: a name that is not in the table."""
    found = GGUF_NAMES.get(name)
    if found is None:
        what = f"tokenizer.ggml.pre {name!r}"
        raise MapUnsupported(
            f"{what} can't be reproduced exactly, expected one of {sorted(GGUF_NAMES)}; "
            "other ids would be wrong for the model",
            what=what,
        )
    return found
