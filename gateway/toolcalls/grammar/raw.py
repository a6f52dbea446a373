"""Values without quotes to GBNF: what a model may write between the tags of an argument.

A string is text that does not contain its closing tag; a value of any other type is JSON that follows its schema.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gateway.toolcalls.grammar.characters import PlainText
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.patterns import pattern_rules
from gateway.toolcalls.grammar.schema_walk import bounds, kinds
from gateway.toolcalls.grammar.schemas import value_rules
from gateway.toolcalls.grammar.texts import one_of
from gateway.toolcalls.grammar.until import text_without
from gateway.toolcalls.schema.kinds import ALL, kinds_of, mapping_of
from gateway.toolcalls.schema.merge import Schema, alternatives, parts_of


def raw_value(g: Grammar, schema: object, root: Schema, closer: str, *, paired: bool = False) -> str:
    """Return the expression for a value that stands before `closer`.

    With `paired`, a newline at the beginning would be markup: a string begins with something else, or is empty.
    """
    plain = alternatives(parts_of(schema, root), root, g.work)
    if plain and all("string" not in kinds(one) for one in plain):
        return value_rules(g, schema, root, "value")
    return g.either(text for one in plain or [{}] for text in _each(g, one, root, closer, paired))


def _each(g: Grammar, schema: Schema, root: Schema, closer: str, paired: bool) -> Iterator[str]:
    """Yield the ways in which a value of a plain schema is written: JSON, and text."""
    if "enum" in schema:
        yield one_of(
            g, (each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in schema["enum"])
        )
        return
    known = kinds(schema)
    if others := known - {"string"} if known != ALL else None:
        yield value_rules(g, {**schema, "type": sorted(others)}, root, "value")
    if "string" in known:
        yield raw_text(g, schema, closer, paired=paired)


def python_value(g: Grammar, schema: object, root: Mapping[str, Any]) -> str:
    """Return the expression for a value in Python's spelling: like JSON's, except for a lone boolean or null."""
    known = kinds_of(schema, root)
    if known == frozenset({"boolean"}) and not {"enum", "const"} & mapping_of(schema).keys():
        return '("True" | "False")'
    return '"None"' if known == frozenset({"null"}) else f"({value_rules(g, schema, root, 'value')})"


def arguments_in_order(g: Grammar, root: Schema, write: Callable[[str, object], str], separator: str) -> str:
    """Join what `write` returns for each property, the required ones first; the others may be missing."""
    plain = [one for one in alternatives(parts_of(root, root), root, g.work) if "object" in kinds(one)] or [{}]
    return g.either(_in_order(g, one, write, separator) for one in plain)


def _in_order(g: Grammar, schema: Schema, write: Callable[[str, object], str], separator: str) -> str:
    known = mapping_of(schema.get("properties"))
    required = schema.get("required", ())
    comma = g.literal(separator)
    first = more = ""
    for key, value in reversed(list(known.items())):
        if key not in required:
            member = g.rule("member", write(key, value))
            first = g.rule("first", g.either([f"{member} {more}".strip(), first]))
            more = g.rule("more", f"({f'{comma} {member}'.strip()})? {more}".strip())
    must = [f"({write(key, value)})" for key, value in known.items() if key in required]
    between = f" {comma} " if comma else " "
    return f"{between.join(must)} {more}".strip() if must else first


def raw_text(g: Grammar, schema: Schema, closer: str, *, paired: bool = False) -> str:
    """Return the expression for a string that stands before `closer`, whatever else the schema allows.

    `paired`: see `raw_value`.
    """
    not_first = "\n" if paired else ""
    if (pattern := schema.get("pattern")) is not None:
        place = PlainText(closer[0] + not_first)
        text = g.once(("raw pattern", pattern, place), lambda: pattern_rules(g, pattern, place))
        if text is not None:
            return text
    least, most = bounds(schema, "minLength", "maxLength")
    return text_without(g, (closer,), least=least, most=most, not_first=not_first)
