"""What a `$ref` names: a JSON pointer into the same schema, an anchor, or a part with an `$id`. Nothing is fetched.

Turns a reference and the schema's root into the part that it names. Schemas come from outside: any JSON is taken, the
search for anchors has a bound, and a reference that leads nowhere allows any value. Sources: RFC 6901 (pointers, also
as URI fragments), JSON Schema 2020-12 (`$anchor`, `$id`), draft 7 (`$id` of the form `#name`).
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Final, cast

from gateway.toolcalls.schema.keywords import DATA

_MAX_PARTS: Final = 500
"""Most parts of a schema in which an anchor is looked for: each reference may look anew."""
_MAX_REFERENCES: Final = 10_000
_VALUES: Final = 10
"""Values that are looked at for each part that may be found: lists may be wide."""
SchemaNames = Mapping[str, Mapping[str, Any]]
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def resolve(reference: str, root: Mapping[str, Any]) -> object:
    """Return what a reference names; None where it names nothing in this schema, which is never changed."""
    address, _, fragment = reference.partition("#")
    base: object = root
    if address and address != root.get("$id"):
        base = _identified(address, root, _names(_Same(root)))
    if not fragment or base is None:
        return base
    if fragment.startswith("/"):
        found = _pointed(unquoted(fragment), base)
        # Who does not know that a fragment is a part of a URI writes `%` as it stands.
        return found if found is not None or "%" not in fragment else _pointed(fragment, base)
    return _names(_Same(base)).get(f"#{unquoted(fragment)}")


def unquoted(fragment: str) -> str:
    """Return a fragment of a URI without percent encoding; what is not UTF-8 stays as it is."""
    return _PERCENT.sub(lambda found: _decoded(found.group()), fragment)


def steps(pointer: str) -> list[str]:
    """Return the names of a pointer, without escapes."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def escaped(name: str) -> str:
    """Return a name as a step of a pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def dead_references(schema: Mapping[str, Any]) -> list[str]:
    """Return the references of a schema that lead nowhere in it, each once."""
    references = (part.get("$ref") for part in _parts(schema, _MAX_REFERENCES))
    each_once = dict.fromkeys(each for each in references if isinstance(each, str))
    return [each for each in each_once if not _is_schema(resolve(each, schema))]


def _decoded(written: str) -> str:
    try:
        return bytes.fromhex(written.replace("%", "")).decode()
    except UnicodeDecodeError:
        return written


def _is_schema(value: object) -> bool:
    return isinstance(value, Mapping | bool)


def _pointed(pointer: str, found: object) -> object:
    for step in steps(pointer):
        if isinstance(found, Mapping):
            found = cast("Mapping[str, object]", found).get(step)
        elif isinstance(found, list) and step.isdecimal() and step.isascii() and (step == "0" or step[0] != "0"):
            items = cast("list[object]", found)
            found = items[int(step)] if len(step) <= len(str(len(items))) and int(step) < len(items) else None
        else:
            return None
    return found


def _identified(address: str, root: Mapping[str, Any], names: SchemaNames) -> object:
    """The part whose `$id` is this address, which may be relative to that of the schema."""
    own = root.get("$id")
    whole = f"{own.rpartition('/')[0]}/{address}" if isinstance(own, str) and "/" in own else address
    return next((names[each] for each in (address, whole, f"{address}#") if each in names), None)


@dataclass(frozen=True, slots=True)
class _Same:
    """A part of a schema, equal to itself alone."""

    part: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.part is self.part

    def __hash__(self) -> int:
        return id(self.part)


# A schema may have thousands of references, and each search takes a millisecond.
@lru_cache(maxsize=16)
def _names(base: _Same) -> SchemaNames:
    """The parts of a schema by their `$id`, and by `#` and their anchors; the first of each name."""
    found = dict[str, Mapping[str, Any]]()
    for part in _parts(base.part):
        named = (part.get("$id"), *(f"#{part[key]}" for key in ("$anchor", "$dynamicAnchor") if key in part))
        for name in named:
            if isinstance(name, str):
                found.setdefault(name, part)
    return found


def _parts(schema: object, most: int = _MAX_PARTS) -> Iterator[Mapping[str, Any]]:
    """Yield the mappings inside a schema, itself first, but none in a value of data; at most `most`."""
    waiting, room = deque([schema]), most * _VALUES
    while waiting and most > 0:
        each, values = waiting.popleft(), list[object]()
        if isinstance(each, Mapping):
            known = cast("Mapping[str, Any]", each)
            yield known
            most -= 1
            values = [value for key, value in islice(known.items(), room) if key not in DATA]
        elif isinstance(each, list):
            values = list(islice(cast("list[object]", each), room))
        room -= len(values)
        waiting += [value for value in values if isinstance(value, dict | list)]
