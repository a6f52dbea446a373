"""Checks arguments against an untrusted JSON Schema: says what does not fit, for the model that wrote them.

Nothing that a schema names is fetched, none of its regular expressions is run, the number of references followed is
bounded, and a schema that can't be read allows everything. The only module that loads `jsonschema`. Source: JSON Schema
2020-12, or the draft that the schema names.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any, cast

from jsonschema import Draft3Validator, Draft4Validator, Draft202012Validator, ValidationError, validators
from jsonschema.exceptions import SchemaError
from referencing import Registry
from referencing.exceptions import Unresolvable

MAX_PROBLEMS = 5
"""Most problems reported at once: enough to correct a call."""

MAX_REFERENCES = 10_000
"""Most references that one check follows: a schema can refer to itself twice, and double the work at each level."""

MAX_SCHEMA_DEPTH = 32
"""Most levels of objects and lists in a schema."""

MAX_VALUES = 10_000
"""Most values in the schema of an answer: each may cost a rule of its grammar."""

MAX_DEPTH = 60
"""Most levels of nested keywords in one check, counting references followed. Python's recursion limit must never be
reached: inside the library's native part it would not be an exception that can be caught."""

_SHOWN = 160
"""Most characters of one problem's text, which may quote the value."""

_SKIPPED = (
    # They run regular expressions, which can be made to take forever, or depend on keywords that do.
    *("pattern", "patternProperties", "propertyNames", "unevaluatedProperties"),
    # They resolve references in ways that can't be counted.
    *("$dynamicRef", "$recursiveRef"),
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
    try:
        return _checker(json.dumps(schema, default=dict)).problems(arguments)
    except _UNREADABLE:
        return []


def flaw(schema: object) -> str | None:
    """Say why a JSON value is not a schema that can be read here; None where it is one."""
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        return f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels"
    if _size(schema) > MAX_VALUES:
        return f"it holds more than {MAX_VALUES} values"
    kind: Any = _library.validator_for(schema, default=Draft202012Validator)
    if kind in (Draft3Validator, Draft4Validator):
        return "its `$schema` is older than draft 6"
    try:
        _check_schema(kind, schema)
    except SchemaError as error:
        return _words(error, "schema")
    except _UNREADABLE:
        return "it can't be read"
    return None


def _check_schema(kind: Any, schema: object) -> None:
    """Hold a schema against its metaschema, without formats: `regex` would compile every pattern.

    Python's compiler takes 8 ms for 7 bytes such as `[!-\uffff]` under `(?i)`, and refuses what other dialects allow.
    """
    kind.check_schema(schema, format_checker=None)


class _TooMuch(Exception):
    """The schema asks for more work than a check may take."""


_UNREADABLE = (
    *(SchemaError, Unresolvable, _TooMuch, RecursionError),
    # What the library raises for faults that a schema's own schema does not catch.
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
)


class _Checker:
    """One schema, ready to check."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises SchemaError when it is not a schema, and _TooMuch when it is too deep."""
        if _depth(schema) > MAX_SCHEMA_DEPTH:
            raise _TooMuch
        kind: Any = _library.validator_for(schema, default=Draft202012Validator)
        _check_schema(kind, schema)
        self._left = 0
        self._inside = 0
        rules: dict[str, Keyword] = dict(kind.VALIDATORS)
        rules["$ref"] = _any_where_dead(rules["$ref"])
        rules["additionalProperties"] = _unless_by_pattern(rules["additionalProperties"])
        keywords = {name: self._counted(rule, reference=name == "$ref") for name, rule in rules.items()}
        keywords |= {**dict.fromkeys(_SKIPPED, _skip), "uniqueItems": _unique}
        # An empty registry: nothing outside the schema exists, and nothing is looked for.
        self._validator: Any = _library.extend(kind, keywords)(schema, registry=cast("Any", Registry)())

    def problems(self, arguments: object) -> list[str]:
        """Say what is wrong."""
        self._left = MAX_REFERENCES
        self._inside = 0
        errors: Iterator[ValidationError] = self._validator.iter_errors(arguments)
        return list(dict.fromkeys(_words(error) for error in islice(errors, MAX_PROBLEMS)))

    def _counted(self, rule: Keyword, *, reference: bool) -> Keyword:
        def check(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
            self._left -= reference
            self._inside += 1
            if self._left < 0 or self._inside > MAX_DEPTH:
                raise _TooMuch
            yield from rule(validator, value, instance, schema) or ()
            self._inside -= 1

        return check


@lru_cache(maxsize=512)
def _checker(schema_text: str) -> _Checker:
    """Return the checker for a schema, built once."""
    return _Checker(json.loads(schema_text))


def _depth(schema: object) -> int:
    """How deeply objects and lists are nested; found without recursion."""
    deepest, level = 0, [schema]
    while level := [inner for outer in level for inner in _inner(outer)]:
        deepest += 1
        if deepest > MAX_SCHEMA_DEPTH:
            break
    return deepest


def _size(schema: object) -> int:
    size, level = 1, [schema]
    while level := [inner for outer in level for inner in _inner(outer)]:
        size += len(level)
    return size


def _inner(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()


def _skip(_validator: Any, _value: Any, _instance: Any, _schema: Mapping[str, Any]) -> None:
    return None


def _unique(_validator: Any, wanted: Any, value: Any, _schema: Mapping[str, Any]) -> Iterator[ValidationError]:
    """Compare items by their text, in one pass; the library compares every item with every other."""
    items = cast("list[object]", value) if wanted is True and isinstance(value, list) else []
    if len({json.dumps(item, sort_keys=True) for item in items}) < len(items):
        yield ValidationError("two of the items are equal")


def _any_where_dead(check: Keyword) -> Keyword:
    """Let a reference that leads nowhere allow any value, instead of leaving the whole schema unchecked."""

    def checked(validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[ValidationError]:
        try:
            yield from check(validator, value, instance, schema) or ()
        except Unresolvable:
            return

    return checked


def _unless_by_pattern(check: Keyword) -> Keyword:
    """Skip the check where the schema has patterns: they decide which keys are additional."""

    def checked(
        validator: Any, value: Any, instance: Any, schema: Mapping[str, Any]
    ) -> Iterable[ValidationError] | None:
        return None if "patternProperties" in schema else check(validator, value, instance, schema)

    return checked


def _words(error: ValidationError | SchemaError, root: str = "arguments") -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.absolute_path)
    place, message = "".join((root, *steps)), error.message
    return f"{_cut(place)}: {_cut(message)}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
