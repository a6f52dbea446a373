"""How large a JSON value from outside may be before anything reads it: values, characters, levels.

Turns a value into the reason why it is too large, or None. Every reader of a stranger's schema asks here first: this
stops at the first bound that is passed, so it costs as much as the bound allows, however large the value is. Pure.
"""

from collections.abc import Iterable
from itertools import chain, islice
from typing import Final, cast

MAX_VALUES: Final = 10_000
"""Most values in a schema: each may cost a rule of a grammar."""
MAX_CHARACTERS: Final = 256 * 1024
"""Most characters in the keys and texts of a schema. Definitions of real tools, descriptions included, have at most a
quarter of that."""
MAX_DEPTH: Final = 32
"""Most levels of objects and lists in a schema."""


def excess(value: object) -> str | None:
    """Say why a schema is too large to be read; None where it is not."""
    size, deepest, characters, level = 1, 0, _characters(value), [value]
    while level:
        # One more than what is left is enough to know.
        level = list(islice(chain.from_iterable(map(_inside, level)), MAX_VALUES + 1 - size))
        size += len(level)
        characters += sum(map(_characters, level))
        deepest += bool(level)
        if deepest > MAX_DEPTH:
            return f"it is nested deeper than {MAX_DEPTH} levels"
        if size > MAX_VALUES:
            return f"it holds more than {MAX_VALUES} values"
        if characters > MAX_CHARACTERS:
            return f"its names and texts have more than {MAX_CHARACTERS} characters"
    return None


def is_larger(value: object, values: int) -> bool:
    """Whether a JSON value holds more values than that, itself included."""
    waiting, found = [value], 1
    while waiting and found <= values:
        inner = list(islice(_inside(waiting.pop()), values))
        found += len(inner)
        waiting += inner
    return found > values


def characters_of(value: object, most: int) -> int:
    """Count the characters of all keys and texts in a JSON value; stops at the first count over `most`."""
    waiting, found = [value], 0
    while waiting and found <= most:
        item = waiting.pop()
        found += 1 + _characters(item)
        waiting += _inside(item)
    return found


def _characters(value: object) -> int:
    """The characters of a text, or of an object's keys."""
    if isinstance(value, str):
        return len(value)
    return sum(map(len, map(str, cast("dict[object, object]", value)))) if isinstance(value, dict) else 0


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[str, object]", value).values()
    return cast("list[object]", value) if isinstance(value, list) else ()
