"""A JSON Schema to a grammar that accepts only texts that fit it, or the reason why there is none.

Calls may be held loosely, since their arguments are checked again before a tool sees them; an answer goes to its client
as it is written. So a keyword that GBNF can't express is refused by name, and so is a schema so large that the walk
would leave something out. Keywords that only describe a value are ignored. Source: JSON Schema 2020-12, and draft 7.
"""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Final

from gateway.toolcalls.grammar.ambiguity import is_ambiguous
from gateway.toolcalls.grammar.apart import Option, with_fitting
from gateway.toolcalls.grammar.gbnf import MAX_COUNT, MAX_COUNTED, Grammar
from gateway.toolcalls.grammar.held import check_keywords, check_plain, check_together, refuse
from gateway.toolcalls.grammar.schemas import JsonRules
from gateway.toolcalls.schema.kinds import mapping_of
from gateway.toolcalls.schema.merge import MAX_ALTERNATIVES, MAX_PARTS, Parts, Schema, TooMany, listed, parts_of, spread
from gateway.toolcalls.schema.pointers import resolve

_TOO_MANY: Final = "the schema has too many alternatives in one place"
_NEGATED: Final = re.compile(r"(?<!\\)(?:\\\\)*\\[DSW]")
_OLD: Final = re.compile(r"draft-0\d|2019-09")


def exact_rules(g: Grammar, schema: object, name: str) -> str:
    """Return the expression for the values of a schema. Raises `NotHeld`."""
    if schema is False:
        refuse("no value fits the schema `false`")
    root = mapping_of(schema)
    walk = _Exact(g, root, name)
    if is_ambiguous(walk):
        refuse(
            "too many of its alternatives begin alike, one inside the other; give each a first required member with a "
            "`const` of its own, or fewer alternatives"
        )
    written = walk.value(root) or refuse("no value of finite length fits the schema")
    if not g.exact:
        refuse(f"a count exceeds {MAX_COUNT}, or all of them together {MAX_COUNTED}, the most that a grammar takes")
    return written


class _Exact(JsonRules):
    """The rules of one schema, as JSON; none accepts more than the schema does."""

    def __init__(self, g: Grammar, root: Schema, name: str) -> None:
        super().__init__(g, root, name)
        self._surveyed: dict[int, Schema | None] = {}
        """Surveyed schemas, by their addresses; None while their parts are being surveyed."""

    def beyond(self) -> str:
        """Refuse a part that is too large to be written."""
        refuse("the schema is too large or too deeply nested")

    def nothing(self) -> str:
        """Refuse a part that has no value at all."""
        refuse("no value fits a part of the schema")

    def alternatives(self, parts: Parts) -> list[Schema]:
        """Return all plain schemas, or refuse."""
        for part in parts:
            self._survey(part, 0)
        try:
            plain = spread(parts, self.root, self.g.work, check_together)
        except TooMany:
            refuse(_TOO_MANY)
        for schema in plain:
            check_plain(schema)
        return [fitting for schema in plain if (fitting := with_fitting(schema)).get("enum") != []]

    def _survey(self, part: Schema, depth: int) -> None:
        """Look at a schema, and at all others that may hold for the same value; refuse whatever is not held."""
        if id(part) in self._surveyed:
            if self._surveyed[id(part)] is None:
                refuse("a schema refers to itself without a member or an item in between")
            return
        if depth > MAX_PARTS:
            self.beyond()
        self._surveyed[id(part)] = None
        self._look_at(part)
        beside = [option for key in ("allOf", "anyOf", "oneOf") for option in listed(part.get(key))]
        if "$ref" in part:
            beside.append(resolve(part["$ref"], self.root))
        for other in filter(None, map(mapping_of, beside)):
            self._survey(other, depth + 1)
        self._surveyed[id(part)] = part

    def _look_at(self, part: Schema) -> None:
        check_keywords(part)
        self._check_references(part)
        self._check_one_of(part)
        if part is not self.root and ("$id" in part or "$schema" in part):
            refuse("a schema inside the schema has an `$id` or `$schema` of its own")
        if "prefixItems" in part and _OLD.search(str(self.root.get("$schema"))):
            refuse("`prefixItems` is not a keyword of the draft that `$schema` names")

    def _check_references(self, part: Schema) -> None:
        reference = part.get("$ref")
        if reference is not None and (
            not isinstance(reference, str) or not isinstance(resolve(reference, self.root), Mapping)
        ):
            refuse(f"`$ref` {str(reference)[:100]!r} points to no schema inside this one; write it as `#/$defs/NAME`")
        if False in listed(part.get("allOf")):
            refuse("no value fits `false` in `allOf`")

    def _check_one_of(self, part: Schema) -> None:
        given = [option for option in listed(part.get("oneOf")) if option is not False]
        if len(given) > MAX_ALTERNATIVES:
            # Checked before every one is compared with every other.
            refuse(_TOO_MANY)
        options = [Option(parts_of(option, self.root)) for option in given]
        for one, other in combinations(options, 2):
            if not one.is_apart(other):
                refuse("a value may fit two schemas of `oneOf`; use `anyOf`, or give each a `const` of its own")

    def pattern(self, pattern: str) -> str:
        """Return the expression for the texts in which a pattern matches, or refuse."""
        if _NEGATED.search(pattern):
            refuse(
                f"`pattern` {pattern[:100]!r} uses `\\D`, `\\S` or `\\W`, whose meaning differs between readers; "
                "use a negated class such as `[^0-9]`"
            )
        return super().pattern(pattern) or refuse(
            f"`pattern` {pattern[:100]!r} is too long or too complex for a grammar, which can express "
            "characters, classes, groups, alternatives and counts"
        )
