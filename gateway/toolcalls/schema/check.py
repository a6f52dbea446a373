"""Arguments against a JSON Schema that nobody here wrote: what does not fit, in words for the model that wrote them.

Nothing that a schema names is fetched, no regular expression of it is run, references are followed only so often, and a
schema that can't be read allows everything. The only module that loads `jsonschema`. Source: JSON Schema 2020-12, or
the draft that the schema names.
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

MAX_COMPLAINTS = 5
"""How many things are named at once: enough to put a call right."""

MAX_REFERENCES = 10_000
"""References that one check follows: a schema can name itself twice over, and double the work at each level."""

MAX_SCHEMA_DEPTH = 32
"""Objects and lists inside each other in a schema."""

MAX_VALUES = 10_000
"""Values in the schema of an answer: each may cost a rule of its grammar."""

MAX_DEPTH = 60
"""Keywords inside each other in one check, references followed included. Python's own bound on the stack must never be
met: inside the library's native part that is no exception that anybody could catch."""

_SHOWN = 160
"""Characters of one complaint, which may quote the value."""

_SKIPPED = (
    # They run regular expressions, which can be made to take forever, or need those that do.
    *("pattern", "patternProperties", "propertyNames", "unevaluatedProperties"),
    # They look for what is referred to in ways that can't be counted.
    *("$dynamicRef", "$recursiveRef"),
)

_library: Any = validators
"""Its functions have no types."""

Keyword = Callable[[Any, Any, Any, Mapping[str, Any]], Iterable[ValidationError] | None]
"""How jsonschema checks one keyword: validator, the keyword's value, the instance, the schema around it."""


def problems(schema: object, arguments: object) -> list[str]:
    """Say what of a call's arguments does not fit the schema, both of them JSON that was read; an empty list: all does.

    At most `MAX_COMPLAINTS`, each with its place, as in `arguments.days: 'x' is not of type 'integer'`. Never raises: a
    schema that is none, that refers to something outside itself, or that takes too much work, has no problems.
    """
    try:
        return _checker(json.dumps(schema, default=dict)).problems(arguments)
    except _UNREADABLE:
        return []


def flaw(schema: object) -> str | None:
    """Say why a JSON value is no schema that can be read here; None where it is one."""
    if _depth(schema) > MAX_SCHEMA_DEPTH:
        return f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels"
    if _size(schema) > MAX_VALUES:
        return f"it holds more than {MAX_VALUES} values"
    kind: Any = _library.validator_for(schema, default=Draft202012Validator)
    if kind in (Draft3Validator, Draft4Validator):
        return "its `$schema` is older than draft 6"
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        return _words(error, "schema")
    except _UNREADABLE:
        return "it can't be read"
    return None


class _TooMuch(Exception):
    """The schema asks for more work than a check may take."""


_UNREADABLE = (
    *(SchemaError, Unresolvable, _TooMuch, RecursionError),
    # What the library trips over where a schema's own schema let it pass.
    *(ArithmeticError, AttributeError, LookupError, TypeError, ValueError),
)


class _Checker:
    """One schema, ready to check."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Raises SchemaError when it is none, and _TooMuch when it is too deep."""
        if _depth(schema) > MAX_SCHEMA_DEPTH:
            raise _TooMuch
        kind: Any = _library.validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
        self._left = 0
        self._inside = 0
        rules: dict[str, Keyword] = dict(kind.VALIDATORS)
        rules["additionalProperties"] = _unless_by_pattern(rules["additionalProperties"])
        keywords = {name: self._counted(rule, reference=name == "$ref") for name, rule in rules.items()}
        keywords |= {**dict.fromkeys(_SKIPPED, _skip), "uniqueItems": _unique}
        # An empty registry: what the schema names outside of itself is not there, and is not looked for.
        self._validator: Any = _library.extend(kind, keywords)(schema, registry=cast("Any", Registry)())

    def problems(self, arguments: object) -> list[str]:
        """Say what is wrong."""
        self._left = MAX_REFERENCES
        self._inside = 0
        errors: Iterator[ValidationError] = self._validator.iter_errors(arguments)
        return list(dict.fromkeys(_words(error) for error in islice(errors, MAX_COMPLAINTS)))

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
    """Give the checker of a schema, built once."""
    return _Checker(json.loads(schema_text))


def _depth(schema: object) -> int:
    """How deep objects and lists stand inside each other; found without recursion."""
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
    """Compare items by their text, each once; the library compares every item with every other."""
    items = cast("list[object]", value) if wanted is True and isinstance(value, list) else []
    if len({json.dumps(item, sort_keys=True) for item in items}) < len(items):
        yield ValidationError("two of the items are equal")


def _unless_by_pattern(check: Keyword) -> Keyword:
    """Which keys are additional is a matter of patterns where the schema has any."""

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
