"""Why a client can't compile a JSON Schema: the first keyword whose value no validator takes.

Turns a schema into that keyword and the reason; None if there is none. Stricter than a validator has to be where
JavaScript and Python differ: a pattern counts only if it is certain that both read it. Source: Ajv 8, which the
TypeScript SDK compiles every output schema with.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from gateway.proxy.upstream.items.item_flaws import shown
from gateway.toolcalls.schema.budget import excess
from gateway.toolcalls.schema.keyword_values import TAKES, Takes, is_list, is_table, misfit, parts
from gateway.toolcalls.schema.pointers import dead_references

_LONGEST: Final = 1000
_ESCAPE: Final = r"[dDwWsSnrtfv0^$\\.*+?()\[\]{}|/]|u[0-9A-Fa-f]{4}|x[0-9A-Fa-f]{2}"
_OFTEN: Final = r"(?:(?:[?*+]|\{\d{1,4}(?:,\d{0,4})?\})\??)?"
_PLAIN_PATTERN: Final = re.compile(
    rf"(?>(?:[^\\\[\](){{}}?*+|^$]|\\(?:{_ESCAPE})|\[\^?(?:[^\\\[\]^]|\\(?:{_ESCAPE}|-))+\]|\)){_OFTEN}"
    r"|\((?:\?(?:[:=!]|<[=!]))?|[|^$]|\\[bB])*"
)
"""Patterns that Python and JavaScript (with its flag `u`) read alike, of the parts that schemas are usually made of."""
_LOOKS: Final = re.compile(r"\(\?<?[=!]")
_REPEATED: Final = re.compile(r"\)[?*+{]")
_MEMBER: Final = re.compile(r"\\(?:u.{4}|x.{2}|.)|.", re.DOTALL)
_PIECE: Final = re.compile(r"\\.|\[\^?(?P<inside>(?:[^\\\]]|\\.)+)\]|\{(?P<least>\d+),(?P<most>\d*)\}|[()]", re.DOTALL)
_CONTROLS: Final = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_ID: Final = re.compile(r"(?:https?://[A-Za-z0-9.-]+(?::\d{1,5})?(?:/[A-Za-z0-9_.~/-]*)?|[A-Za-z0-9_./-]*)#?")


def schema_fault(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """The keyword that can't be compiled, and why."""
    if (too_large := excess(schema)) is not None:
        return "", too_large
    if dead := dead_references(schema):
        return "$ref", f"{shown(dead[0])} names nothing in the schema"
    if (found := misfit(schema, _TAKES)) is not None:
        _, keyword, value = found
        return keyword, f"{shown(value)} is no value for it"
    names = set[str]()
    for _, part in parts(schema):
        for keyword in _NAMES & part.keys():
            if part[keyword] in names:
                return keyword, f"{shown(part[keyword])} names two parts of the schema"
            names.add(part[keyword])
        if "nullable" in part and "type" not in part:
            return "nullable", "it stands without a type"
    return None


def _is_pattern(value: object) -> bool:
    """Whether Python and JavaScript certainly read a pattern; found without compiling it.

    Python's compiler takes 8 ms for 7 bytes such as `[!-\uffff]`, and these are a server's.
    """
    if not isinstance(value, str) or len(value) > _LONGEST or _PLAIN_PATTERN.fullmatch(value) is None:
        return False
    if "(?<" in value or (_LOOKS.search(value) and _REPEATED.search(value)):
        # JavaScript repeats no look-around, Python looks back no varying distance; where one ends is not looked for.
        return False
    depth = 0
    for found in _PIECE.finditer(value):
        depth += {"(": 1, ")": -1}.get(found.group(), 0)
        if depth < 0 or not (_is_ordered(found["least"], found["most"]) and _is_class(found["inside"] or "")):
            return False
    return depth == 0


def _is_ordered(least: str | None, most: str | None) -> bool:
    return not least or not most or int(least) <= int(most)


def _is_class(inside: str) -> bool:
    """Whether the ends of each range in a class are two characters in order."""
    members, at = [found.group() for found in _MEMBER.finditer(inside)], 0
    while at + 2 < len(members):
        if members[at + 1] != "-":
            at += 1
            continue
        low, high = _code(members[at]), _code(members[at + 2])
        if low is None or high is None or low > high:
            return False
        at += 3
    return True


def _code(member: str) -> int | None:
    """The code point of a class's member; None for a set of characters."""
    if len(member) == 1:
        return ord(member)
    if member[1] in "xu":
        return int(member[2:], 16)
    return None if member[1] in "dDwWsS" else ord(_CONTROLS.get(member[1], member[1]))


_NAMES: Final = frozenset(("$id", "$anchor", "$dynamicAnchor"))
_TAKES: Final[Mapping[str, Takes]] = {
    **TAKES,
    **dict.fromkeys(
        ("$anchor", "$dynamicAnchor"), lambda value: isinstance(value, str) and bool(_NAME.fullmatch(value))
    ),
    "nullable": lambda value: isinstance(value, bool),
    "patternProperties": lambda value: is_table(value) and all(map(_is_pattern, cast("dict[str, object]", value))),
    "pattern": _is_pattern,
    "enum": lambda value: is_list(value) and bool(value),
    "$id": lambda value: isinstance(value, str) and bool(_ID.fullmatch(value)),
    **dict.fromkeys(
        ("id", "formatMinimum", "formatMaximum", "formatExclusiveMinimum", "formatExclusiveMaximum"), lambda _: False
    ),
}
"""What clients' validators take, which is less than JSON Schema allows."""
