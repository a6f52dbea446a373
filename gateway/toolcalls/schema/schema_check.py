"""Checks arguments against an untrusted JSON Schema: says what does not fit, for the model that wrote them.

Nothing that a schema names is fetched, none of its regular expressions is compiled or run, the work of one check is
bounded, and a schema that can't be read allows everything. The only module that loads `jsonschema`. Source: JSON Schema
2020-12, or the draft that the schema names.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from jsonschema import Draft3Validator, Draft4Validator, Draft202012Validator, ValidationError, validators
from referencing import Registry
from referencing.exceptions import Unresolvable

from gateway.toolcalls.schema.keywords import TAKES, TAKES_IN_DRAFT_4, characters_of, excess, misfit

MAX_PROBLEMS = 5
"""Most problems reported at once: enough to correct a call."""

MAX_WORK = 50_000
"""Most work of one check: keywords applied, with the members and items that each looks at, and problems found on the
way. A schema can refer to itself twice, and double the work at each level. A unit takes up to 2 us."""

MAX_CHARACTERS = 4 * 1024 * 1024
"""Most characters of arguments that are checked."""

_CHARACTERS = 200
"""Characters of the arguments that cost as much as a unit of work to quote: each problem quotes the whole value."""

_SEARCHED = 4
"""Characters of a schema that cost as much as a unit of work to search for what a reference names."""

MAX_DEPTH = 60
"""Most levels of nested keywords in one check, counting references followed. Python's recursion limit must never be
reached: inside the library's native part it would not be an exception that can be caught."""

_SHOWN = 160
"""Most characters of one problem's text, which may quote the value."""

_SKIPPED = (
    # They run regular expressions, which can be made to take forever, or depend on keywords that do.
    *("pattern", "patternProperties", "propertyNames", "unevaluatedProperties"),
    # They resolve references in ways that can't be counted. The first does so for schemas that no keyword checks.
    *("unevaluatedItems", "$dynamicRef", "$recursiveRef"),
)

_library: Any = validators
"""The library's functions have no types."""

Keyword = Callable[[Any, Any, Any, Mapping[str, Any]], Iterable[ValidationError] | None]
"""How jsonschema checks one keyword: validator, the keyword's value, the instance, the schema around it."""


def problems(schema: object, arguments: object) -> list[str]:
    """Say which of a call's arguments do not fit the schema (both parsed JSON); an empty list: all of them fit.

    At most `MAX_PROBLEMS`, each with its place, as in `arguments.days: 'x' is not of type 'integer'`. Never raises:
    an invalid schema, one that refers to something outside itself, or one that takes too much work gives no problems.
    """
    if excess(schema) is not None:
        return []
    try:
        return _checker(json.dumps(schema, default=dict)).problems(arguments)
    except _UNREADABLE:
        return []


def flaw(schema: Mapping[str, Any]) -> str | None:
    """Say why a JSON value is not a schema that can be read here; None where it is one."""
    if (too_large := excess(schema)) is not None:
        return too_large
    if _kind_of(schema) in (Draft3Validator, Draft4Validator):
        return "its `$schema` is older than draft 6"
    if (found := misfit(schema)) is not None:
        path, keyword, value = found
        return f"{_cut('.'.join(('schema', *path, keyword)))}: {_cut(repr(value))} is no value of `{keyword}`"
    return None


def _kind_of(schema: Mapping[str, Any]) -> Any:
    """The library's class for the draft that a schema names; what is no address names none."""
    try:
        return _library.validator_for(schema, default=Draft202012Validator)
    except (AttributeError, TypeError, ValueError):
        return Draft202012Validator


class _TooMuch(Exception):
    """The schema asks for more work than a check may take."""


_UNREADABLE = (
    *(Unresolvable, _TooMuch, RecursionError),
    # What the library raises for faults that `misfit` does not catch.
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
)


class _Checker:
    """One schema, ready to check."""

    def __init__(self, text: str) -> None:
        """`text`: the schema's JSON. Raises ValueError when it is not a schema."""
        schema: Mapping[str, Any] = json.loads(text)
        kind = _kind_of(schema)
        if kind is Draft3Validator or misfit(schema, TAKES_IN_DRAFT_4 if kind is Draft4Validator else TAKES):
            raise ValueError
        self._left = 0
        self._price = 0
        self._search = len(text) // _SEARCHED
        # A schema inside that has an address of its own, or an address with a `#`, has every place searched for.
        address = "id" if kind is Draft4Validator else "$id"
        own: object = schema.get(address)
        self._finds_places = text.count(f'"{address}"') == (isinstance(own, str) and "#" not in own)
        self._inside = 0
        rules: dict[str, Keyword] = dict(kind.VALIDATORS)
        rules["$ref"] = self._referring(rules["$ref"])
        rules["additionalProperties"] = _unless_by_pattern(rules["additionalProperties"])
        keywords = {name: self._counted(rule) for name, rule in (rules | {"uniqueItems": self._unique}).items()}
        keywords |= dict.fromkeys(_SKIPPED, _skip)
        # An empty registry: nothing outside the schema exists, and nothing is looked for.
        self._validator: Any = _library.extend(kind, keywords)(schema, registry=cast("Any", Registry)())

    def problems(self, arguments: object) -> list[str]:
        """Say what is wrong. Raises _TooMuch."""
        characters = characters_of(arguments, MAX_CHARACTERS)
        self._left, self._inside = MAX_WORK, 0
        self._price = characters // _CHARACTERS
        if characters > MAX_CHARACTERS:
            raise _TooMuch
        errors: Iterator[ValidationError] = self._validator.iter_errors(arguments)
        return list(dict.fromkeys(_words(error) for error in islice(errors, MAX_PROBLEMS)))

    def _counted(self, rule: Keyword) -> Keyword:
        def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
            self._inside += 1
            self._pay(1 + _width(value) + _width(instance))
            for error in rule(validator, value, instance, schema) or ():
                self._pay(self._price)
                yield error
            self._inside -= 1

        return check

    def _pay(self, work: int) -> None:
        self._left -= work
        if self._left < 0 or self._inside > MAX_DEPTH:
            raise _TooMuch

    def _referring(self, rule: Keyword) -> Keyword:
        """Let a reference that leads nowhere allow any value, instead of leaving the whole schema unchecked."""

        def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
            if not (self._finds_places and isinstance(value, str) and (value == "#" or value.startswith("#/"))):
                # The library goes through the whole schema, each time anew.
                self._pay(self._search)
            try:
                yield from rule(validator, value, instance, schema) or ()
            except Unresolvable:
                return

        return check

    def _unique(
        self, _validator: Any, wanted: Any, value: Any, _schema: Mapping[str, Any]
    ) -> Iterator[ValidationError]:
        """Compare items by their text, in one pass; the library compares every item with every other."""
        if wanted is not True or not isinstance(value, list):
            return
        items = cast("list[object]", value)
        self._pay(self._price)
        if len({json.dumps(item, sort_keys=True) for item in items}) < len(items):
            yield ValidationError("two of the items are equal")


@lru_cache(maxsize=512)
def _checker(schema_text: str) -> _Checker:
    """Return the checker for a schema, built once."""
    return _Checker(schema_text)


def _width(value: object) -> int:
    """How many members or items a keyword looks at."""
    return len(cast("list[object]", value)) if isinstance(value, list | dict) else 0


def _skip(_validator: Any, _value: Any, _instance: Any, _schema: Mapping[str, Any]) -> None:
    return None


def _unless_by_pattern(check: Keyword) -> Keyword:
    """Skip the check where the schema has patterns: they decide which keys are additional."""

    def checked(
        validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]
    ) -> Iterable[ValidationError] | None:
        return None if "patternProperties" in schema else check(validator, value, instance, schema)

    return checked


def _words(error: ValidationError) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    place, message = "".join(("arguments", *steps)), error.message
    return f"{_cut(place)}: {_cut(message)}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
