r"""Codec's pre-tokenizer programs, versions 1 and 2, to regular expressions, and back for the cuts that have one.

A program spells a cut as named operations, for readers without a regular-expression engine; each operation is one
alternative of an expression, so a program of version 1 is one expression, and one of version 2 is several, each applied
to the pieces of the one before. What version 1 leaves unmatched is cut into single characters; in version 2 it is one
piece. Classes such as `\p{L}` are Oniguruma's, as in `tokenizers`.

Source: Codec's PRETOKENIZER_PROGRAM and, for version 2, the operations that published maps use.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from leaf_sdk.errors import MapUnsupported

from .fields import as_object, inexact

CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
_NEWLINES = r"[\r\n]*"
_ASCII_PUNCTUATION = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEADS = {"l_n": r"[^\r\n\p{L}\p{N}]?", "l_p_s": r"[^\r\n\p{L}\p{P}\p{S}]?"}
_BODIES = {"L": r"\p{L}+", "L_M": r"[\p{L}\p{M}]+"}
_CHARSETS = {"not_ws_L_N": r"[^\s\p{L}\p{N}]+", "p_s": r"[\p{P}\p{S}]+"}
_ANY = r"[\s\S]"

DIGIT = r"\p{N}"
CJK = "[一-龥぀-ゟ゠-ヿ]+"
_STAGES = {
    "digit_triples_isolate": "[0-9][0-9][0-9]",
    "punctuation_contiguous": r"[\p{P}$+<=>^`|~]+",
    "cjk_isolate": CJK,
}

Op = Mapping[str, Any]


def patterns_of(program: object) -> tuple[str, ...]:
    """Return the expressions that a program stands for, in the order in which they cut.

    Raises:
        MapUnsupported: another version, or an operation or option that is not known: a guess would cut elsewhere.
    """
    fields = as_object(program)
    match fields.get("version"), fields.get("ops"), fields.get("stages"):
        case 1, [_, *_] as ops, None:
            return (_alternation(cast("list[object]", ops)) + "|" + _ANY,)
        case 2, None, [_, *_] as stages:
            return tuple(_stage(stage) for stage in cast("list[object]", stages))
        case _:
            raise _unsupported(program, "version 1 with `ops` or version 2 with `stages`")


def program_of(patterns: tuple[str, ...]) -> dict[str, Any] | None:
    """Return the program of a cut in several stages, or None where none is known."""
    for program in _known():
        if patterns_of(program) == patterns:
            return program
    return None


def single_of(patterns: tuple[str, ...]) -> str | None:
    """Return one expression that cuts as several in turn do, for readers that don't know programs; None if unknown.

    What the earlier ones isolate ends a piece, so the classes of the last one leave it out, and after white space it
    counts as the end of the text.
    """
    return {patterns_of(program): single for program, single in zip(_known(), _SINGLES, strict=True)}.get(patterns)


_SMOLLM = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?![^\s\p{N}])|\s+"
_KANA = CJK[:-1]
_IN_KANA = (
    rf"(?:(?={_KANA})[^\r\n\p{{L}}\p{{P}}\p{{S}}])?(?:(?={_KANA})[\p{{L}}\p{{M}}])+|(?:(?={_KANA})[\p{{P}}\p{{S}}])+"
)
_DEEPSEEK = (
    rf"\p{{N}}{{1,3}}|{_IN_KANA}|(?:(?!{_IN_KANA}){_KANA})+|{_ASCII_PUNCTUATION}[A-Za-z]+"
    rf"|[^\r\n\p{{L}}\p{{P}}\p{{S}}\p{{N}}{_KANA[1:-1]}]?(?:(?!{_KANA})[\p{{L}}\p{{M}}])+"
    rf"| ?(?:(?!{_KANA})[\p{{P}}\p{{S}}])+[\r\n]*|\s*[\r\n]+|\s+(?![^\s\p{{N}}{_KANA[1:-1]}])|\s+"
)
_SINGLES = (_SMOLLM, rf"{_DEEPSEEK}|(?:(?!{_DEEPSEEK}){_ANY})+")
"""In the order of `_known`. Text that the second program does not match is one piece, up to the next match."""


def _known() -> list[dict[str, Any]]:
    gpt2: list[Op] = [
        {"op": "literals", "patterns": list(CONTRACTIONS)},
        {"op": "letters", "lead_space": True},
        {"op": "numbers", "lead_space": True},
        {"op": "punct_run", "lead_space": True},
        {"op": "trailing_ws"},
        {"op": "ws_run"},
    ]
    deepseek: list[Op] = [
        {"op": "punct_ascii_letters"},
        {"op": "letters", "lead_other": True, "lead_other_class": "l_p_s", "body": "L_M"},
        {"op": "punct_run", "lead_space": True, "trailing_newlines": True, "charset": "p_s"},
        {"op": "newline_block"},
        {"op": "trailing_ws"},
        {"op": "ws_run"},
    ]
    digits: Op = {"stage": "digits_isolate", "mode": "individual"}
    triples: Op = {"stage": "digits_isolate", "mode": "grouped", "max_run": 3}
    cjk: Op = {"stage": "cjk_isolate"}
    stages: tuple[list[Op], ...] = (
        [digits, {"stage": "alternation", "ops": gpt2}],
        [triples, cjk, {"stage": "alternation", "ops": deepseek}],
    )
    return [{"version": 2, "stages": each} for each in stages]


def _stage(stage: object) -> str:
    fields = as_object(stage)
    match dict(fields):
        case {"stage": "alternation", "ops": [_, *_] as ops, **rest} if not rest:
            return _alternation(cast("list[object]", ops))
        case {"stage": "digits_isolate", "mode": "individual", **rest} if not rest:
            return DIGIT
        case {"stage": "digits_isolate", "mode": "grouped", **rest} if set(rest) <= {"max_run"}:
            return DIGIT + _run(fields)
        case {"stage": str(name), **rest} if name in _STAGES and not rest:
            return _STAGES[name]
        case _:
            raise _unsupported(stage, f"a known stage: alternation, digits_isolate, {', '.join(_STAGES)}")


def _alternation(ops: list[object]) -> str:
    return "|".join(map(_op, ops))


def _op(op: object) -> str:
    fields = as_object(op)
    name = fields.get("op")
    known = _OPS.get(name) if isinstance(name, str) else None
    if known is None:
        raise _unsupported(op, f"one of {sorted(_OPS)}")
    options, pattern = known
    if strange := set(fields) - {"op"} - options:
        raise _unsupported(op, f"only the options {sorted(options)}, found {sorted(strange)}")
    try:
        return pattern(fields)
    except (KeyError, TypeError) as error:
        raise _unsupported(op, "valid values of its options") from error


def _literals(op: Op) -> str:
    return "|".join("".join(map(_plain, each)) for each in _longest_first(op["patterns"]))


def _literals_ci(op: Op) -> str:
    """Ignore the case of ASCII letters only: `(?i:'s)` would also accept the long s."""
    return "|".join(map(_either_case, _longest_first(op["patterns"])))


def _longest_first(literals: list[str]) -> list[str]:
    """Order literals so that the longest that fits is taken; this matters only where one begins another."""
    begins = any(a != b and b.startswith(a) for a in literals for b in literals)
    return sorted(literals, key=len, reverse=True) if begins else literals


def _either_case(literal: str) -> str:
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else _plain(c) for c in literal)


def _plain(character: str) -> str:
    return character if character in "' /" else re.escape(character)


def _letters(op: Op) -> str:
    lead = _LEADS[op.get("lead_other_class", "l_n")] if op.get("lead_other") else ""
    return _space(op) + lead + _BODIES[op.get("body", "L")]


def _letters_cased(op: Op) -> str:
    lead = _LEADS["l_n"] if op.get("lead_other") else ""
    tail = f"(?:{_literals_ci({'patterns': op['trailing_ci']})})?" if op.get("trailing_ci") else ""
    return lead + {"title": f"{_UPPER}*{_LOWER}+", "upper": f"{_UPPER}+{_LOWER}*"}[op["kind"]] + tail


def _numbers(op: Op) -> str:
    return _space(op) + DIGIT + _run(op)


def _punct_run(op: Op) -> str:
    trailing = f"[{''.join(map(_in_class, op['trailing_chars']))}]*" if op.get("trailing_chars") else ""
    return (
        _space(op)
        + _CHARSETS[op.get("charset", "not_ws_L_N")]
        + (trailing or (_NEWLINES if op.get("trailing_newlines") else ""))
    )


def _in_class(character: str) -> str:
    return {"\r": r"\r", "\n": r"\n"}.get(character) or _plain(character)


def _space(op: Op) -> str:
    return " ?" if op.get("lead_space") else ""


def _run(op: Op) -> str:
    longest = op.get("max_run")
    if longest is None:
        return "+"
    if type(longest) is not int or longest < 1:
        raise _unsupported(op, "max_run of at least 1")
    return "" if longest == 1 else f"{{1,{longest}}}"


_OPS: Mapping[str, tuple[frozenset[str], Callable[[Op], str]]] = {
    "literals": (frozenset({"patterns"}), _literals),
    "literals_ci": (frozenset({"patterns"}), _literals_ci),
    "letters": (frozenset({"lead_other", "lead_space", "lead_other_class", "body"}), _letters),
    "letters_cased": (frozenset({"kind", "lead_other", "trailing_ci"}), _letters_cased),
    "numbers": (frozenset({"max_run", "lead_space"}), _numbers),
    "punct_run": (frozenset({"lead_space", "trailing_newlines", "trailing_chars", "charset"}), _punct_run),
    "punct_ascii_letters": (frozenset(), lambda _: _ASCII_PUNCTUATION + "[A-Za-z]+"),
    "newline_block": (frozenset(), lambda _: r"\s*[\r\n]+"),
    "trailing_ws": (frozenset(), lambda _: r"\s+(?!\S)"),
    "ws_run": (frozenset(), lambda _: r"\s+"),
}


def _unsupported(what: object, expected: str) -> MapUnsupported:
    return inexact(f"pre_tokenizer_program {repr(what)[:200]}", expected)
