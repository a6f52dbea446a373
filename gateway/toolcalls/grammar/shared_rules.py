"""The rules that all schemas share: JSON's own values, and keys that are not among given ones.

Each grammar that uses them gets them once. Only numbers have a bound, since the parsers hold them until they end: the
model decides how long a text or a list is, and how deep it goes, up to the length of its answer.
"""

import json
from collections.abc import Iterable

from gateway.toolcalls.grammar.gbnf import Grammar

_NOT_PLAIN = r'"\\\u007F\u0000-\u001F'

_RULES = {
    # No half of a surrogate pair: the text must be encodable in UTF-8 too.
    "char": r'[^"\\\u007F\u0000-\u001F] | "\\" (["\\/bfnrt] | "u" ([0-9a-cA-Ce-fE-F] hex{3} | [dD] [0-7] hex{2}))',
    "hex": "[0-9a-fA-F]",
    "plain": f"[^{_NOT_PLAIN}]",
    "string": r'"\"" char* "\""',
    "positive": "[1-9] [0-9]{0,99}",
    "natural": '"0" | positive',
    "integer": '"-"? natural',
    "amount": 'natural ("." [0-9]{1,99})? ([eE] [-+]? [0-9]{1,2})?',
    "number": '"-"? amount',
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "string | number | boolean | null | array | object",
    "array": '"[" (value (", " value)*)? "]"',
    "object": '"{" (member (", " member)*)? "}"',
    "member": 'string ": " value',
}
_NEEDS = {
    "char": ("hex",),
    "string": ("char",),
    "natural": ("positive",),
    "integer": ("natural",),
    "amount": ("natural",),
    "number": ("amount",),
    "value": ("string", "number", "boolean", "null", "array", "object"),
    "array": ("value",),
    "object": ("member",),
    "member": ("string", "value"),
}


def shared(g: Grammar, name: str) -> str:
    """Add the rule for one of JSON's own values, or a part of one, with the rules that it needs; return its name."""
    todo = [name]
    while todo:
        one = todo.pop()
        if not g.has(one):
            g.define(one, _RULES[one])
            todo += _NEEDS.get(one, ())
    return name


def key_other_than(g: Grammar, names: Iterable[str], rule: str) -> str:
    """Return the expression for a quoted key that is none of `names`; without escapes, which could spell one of them.

    The rules are a tree of the names' prefixes: each may continue with a character that leaves the tree, or end where
    no name ends.
    """
    rest = f"{shared(g, 'plain')}*"
    known = frozenset(name for name in names if json.dumps(name, ensure_ascii=False) == f'"{name}"')
    starts = {name[:length] for name in known for length in range(len(name) + 1)} | {""}
    rules = {start: g.reserve(f"{rule}-key") for start in sorted(starts, key=lambda start: (len(start), start))}
    following: dict[str, list[str]] = {start: [] for start in rules}
    for start in rules:
        if start:
            following[start[:-1]].append(start[-1])
    for start, chars in following.items():
        steps = [f"{g.one_of(char)} {rules[start + char]}" for char in chars]
        body = f"({' | '.join([*steps, f'{g.none_of(chars, _NOT_PLAIN)} {rest}'])})"
        g.define(rules[start], body if start in known or not start else f"{body}?")
    return f'("\\"" {rules[""]} "\\"")'
