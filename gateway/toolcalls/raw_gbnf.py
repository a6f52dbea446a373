"""Values without quotes to GBNF: what a model may write between the tags of an argument.

A string is text in which its closing tag does not stand; a value of any other type is JSON, after its schema. Every
length has a bound. Below: `gbnf`, `schema_gbnf`, `kinds`. Above: `tagged`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from gateway.toolcalls.gbnf import MAX_REPEAT, Grammar
from gateway.toolcalls.kinds import ALL, STRING, followed, kinds_of, mapping_of, options_of
from gateway.toolcalls.schema_gbnf import value_rules

MAX_RAW = 10_000
"""Pieces of a text whose schema names no maximum; most are one character."""

_BLOCK = 100
_RUN = 16
"""First characters of a closing tag one after another."""
_NUL = r"\x00"


def raw_value(
    g: Grammar, schema: object, root: Mapping[str, Any], closer: str, *, paired: bool = False, levels: int = 4
) -> str:
    """Give the expression for a value that stands before `closer`.

    With `paired`, a newline at the beginning would be markup: a string begins with something else, or is empty.
    `levels` bounds alternatives inside alternatives.
    """
    kinds, known = kinds_of(schema, root), followed(schema, root)
    if "string" not in kinds:
        return value_rules(g, schema, root, "value")
    if choices := choices_of(known):
        texts = (choice if isinstance(choice, str) else json.dumps(choice, ensure_ascii=False) for choice in choices)
        return g.either(map(g.literal, texts))
    if kinds == STRING:
        return _bounded(g, known, closer, paired)
    if kinds == ALL:
        return _text(g, closer, 0, paired)
    if levels and (options := options_of(known)):
        return g.either(raw_value(g, option, root, closer, paired=paired, levels=levels - 1) for option in options)
    others = [value_rules(g, {"type": kind}, root, "value") for kind in sorted(kinds - {"string"})]
    return g.either([*others, _bounded(g, known, closer, paired)])


def python_value(g: Grammar, schema: object, root: Mapping[str, Any]) -> str:
    """Give the expression for a value as Python spells it: JSON's spelling but for a sole word."""
    kinds = kinds_of(schema, root)
    if kinds == frozenset({"boolean"}) and not {"enum", "const"} & mapping_of(schema).keys():
        return '("True" | "False")'
    return '"None"' if kinds == frozenset({"null"}) else f"({value_rules(g, schema, root, 'value')})"


def arguments_in_order(g: Grammar, root: Mapping[str, Any], write: Callable[[str, object], str], separator: str) -> str:
    """Give what `write` gives for each property, the required ones first; the others may be missing."""
    known = mapping_of(root.get("properties"))
    names = root.get("required")
    required = cast(list[object], names) if isinstance(names, list) else []
    comma = g.literal(separator)
    first = more = ""
    for key, schema in reversed(list(known.items())):
        if key not in required:
            member = g.rule("member", write(key, schema))
            first = g.rule("first", g.either([f"{member} {more}".strip(), first]))
            more = g.rule("more", f"({f'{comma} {member}'.strip()})? {more}".strip())
    must = [f"({write(key, schema)})" for key, schema in known.items() if key in required]
    between = f" {comma} " if comma else " "
    return f"{between.join(must)} {more}".strip() if must else first


def raw_text(g: Grammar, schema: Mapping[str, Any], closer: str) -> str:
    """Give the expression for a string that stands before `closer`, whatever else the schema allows."""
    return _bounded(g, schema, closer)


def choices_of(schema: Mapping[str, Any]) -> list[object]:
    """Give the values of an enumeration or a constant, none for any other schema."""
    values: object = [schema["const"]] if "const" in schema else schema.get("enum")
    return cast(list[object], values) if isinstance(values, list) else []


def _bounded(g: Grammar, schema: Mapping[str, Any], closer: str, paired: bool = False) -> str:
    """Give text whose schema counts its characters: none of them may begin the closing tag, or a count would fail."""
    most: object = schema.get("maxLength")
    least: object = schema.get("minLength")
    low = min(least, MAX_REPEAT) if isinstance(least, int) and least > 0 else 0
    if not isinstance(most, int) or isinstance(most, bool):
        return _text(g, closer, low, paired)
    char = g.none_of(closer[0], _NUL)
    if not paired or not most:
        return g.repeat(char, "", low, max(low, most))
    rest = g.repeat(char, "", max(low - 1, 0), max(low, most) - 1)
    return _begun(g.none_of((closer[0], "\n"), _NUL), rest, low)


def _text(g: Grammar, closer: str, least: int, paired: bool) -> str:
    """Give text without `closer`."""
    piece = g.shared(f"text-{_name(closer)}", _pieces(g, closer))
    blocks = g.repeat(g.shared(f"block-{_name(closer)}", f"{piece}{{{_BLOCK}}}"), "", 0, MAX_RAW // _BLOCK)
    lead = g.repeat(piece, "", least - paired, least - paired) if least > paired else ""
    text = " ".join(filter(None, (lead, blocks, g.repeat(piece, "", 0, _BLOCK))))
    text = _begun(g.shared(f"begin-{_name(closer)}", _pieces(g, closer, "\n")), text, least) if paired else text
    # What might have become the closing tag may stand right before it too.
    return f"{text} {_cut_off(g, closer)}".strip()


def _pieces(g: Grammar, closer: str, not_first: str = "") -> str:
    """Give the pieces of a text without `closer`: each leaves what might have become it."""
    first, starts = closer[0], _starts(closer)
    left = ""
    for start in reversed(starts):
        after = closer[len(start)]
        further = f"{g.literal(after)} {left}" if left else ""
        left = g.either(filter(None, (g.none_of(dict.fromkeys((after, first)), _NUL), further)))
    plain = g.none_of((first, *not_first), _NUL)
    return f"{plain} | {_run(g, closer)} {left}" if starts else plain


def _cut_off(g: Grammar, closer: str) -> str:
    """Give a beginning of `closer`, which may stand right before it too, or nothing."""
    starts = _starts(closer)
    end = ""
    for start in reversed(starts[1:]):
        end = f"({g.literal(start[-1])} {end})?" if end else f"{g.literal(start[-1])}?"
    if not end:
        return g.repeat(g.literal(closer[0]), "", 0, 1 if closer[1:2] == closer[0] else _RUN) if starts else ""
    return f"({_run(g, closer)} {end})?"


def _run(g: Grammar, closer: str) -> str:
    """Give the first character of a closing tag, as often as it comes where two of them can't be the tag's."""
    return g.literal(closer[0]) if closer[1:2] == closer[0] else f"{g.literal(closer[0])}{{1,{_RUN}}}"


def _starts(closer: str) -> list[str]:
    """Give the beginnings of a closing tag, up to where its first character comes again and it could begin anew."""
    bound = closer.find(closer[0], 1)
    return [closer[:length] for length in range(1, len(closer) if bound < 0 else max(bound, 2))]


def _begun(begin: str, rest: str, least: int) -> str:
    """Give a text after its beginning, which is no newline; one that may be empty may be so."""
    return f"({begin} {rest}){'' if least else '?'}"


def _name(closer: str) -> str:
    """Give a part of a rule's name that no other closer has."""
    return "".join(char if char.isascii() and char.isalnum() else f"-{ord(char):x}-" for char in closer).strip("-")
