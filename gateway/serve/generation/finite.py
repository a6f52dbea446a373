"""Numbers that JSON does not have, found in a body before it is used, and reported by their place.

JSON's grammar has no `NaN` and no `Infinity`, but parsers accept them, and read `1e999` as Infinity; the engine's
parser accepts none of the three. A body is first searched for what could be such a number, which costs little; only a
body that holds one outside its strings is parsed, to tell the place. Pure.
"""

import re
from collections.abc import Iterator
from math import isfinite
from sys import float_info
from typing import Final, cast

from pydantic_core import from_json

from gateway.errors import RequestInvalid
from gateway.observe.escape import escape_text
from gateway.serve.http.body import without_texts

_WORDS: Final = (b"NaN", b"Infinity")
_ALIKE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_HINTS: Final = (b"e000", b"e+000", b"0" * 200)
"""Every number over 10^308 contains one of these, once its digits 1 to 9 are replaced by 0."""
_DIGITS: Final = 400
"""An integer with so many digits is too large, whatever follows them."""
_LARGE: Final = re.compile(
    # Never inside a number: that would read the rest of it again for each of its digits.
    rb"(?<![0-9.])-?(?:[0-9]++(?:\.[0-9]*+)?(?P<power>[eE]\+?[0-9]{2,}+)|[0-9]{300,}+)"
)
_LOOKS: Final = 100_000
"""Maximum number of values that are looked at to tell the place of a number."""
_SHOWN: Final = 200
"""Maximum characters of a place that an error message shows."""
_LARGEST: Final = int(float_info.max)
_WAY_OUT: Final = "NaN and Infinity are not JSON numbers, and 1e999 is read as Infinity: send null or a smaller number"


def must_be_finite(body: bytes) -> None:
    """Refuse a JSON text that holds NaN, Infinity, or a number larger than the largest float.

    Raises:
        RequestInvalid: names the place of the number, unless it is far behind.
    """
    if not _may_hold_others(body) or not _holds_others(without_texts(body)):
        return
    try:
        value: object = from_json(body)
    except ValueError:
        return  # not JSON at all: the body's own reader reports it
    shown = escape_text(".".join(_first_other(value) or ()), _SHOWN)
    raise RequestInvalid(f"{shown or 'the body'}: {_WAY_OUT}", param=shown or None)


def _may_hold_others(body: bytes) -> bool:
    if any(word in body for word in _WORDS):
        return True
    alike = body.translate(_ALIKE)
    return any(hint in alike for hint in _HINTS)


def _holds_others(bare: bytes) -> bool:
    """Whether a JSON text without its strings holds such a number."""
    return any(word in bare for word in _WORDS) or any(
        _is_other(float(found.group()) if found["power"] else int(found.group()[:_DIGITS]))
        for found in _LARGE.finditer(bare)
    )


def _first_other(value: object) -> tuple[str, ...] | None:
    """The path, in keys and indexes, of the first number that is not finite; None where the first `_LOOKS` are."""
    path: list[str] = [""]
    # One iterator per level: the walk takes next to no memory, whatever the body holds.
    levels: list[Iterator[tuple[str | int, object]]] = [iter((("", value),))]
    for _ in range(_LOOKS):
        if not levels:
            break
        key, item = next(levels[-1], (None, None))
        if key is None:
            levels.pop()
            path.pop()
            continue
        path[-1] = str(key)
        if isinstance(item, float | int):
            if _is_other(item):
                return tuple(path[1:])
        elif (inside := _parts_of(item)) is not None:
            levels.append(inside)
            path.append("")
    return None


def _parts_of(item: object) -> Iterator[tuple[str | int, object]] | None:
    if isinstance(item, dict):
        return iter(cast("dict[str, object]", item).items())
    return iter(enumerate(cast("list[object]", item))) if isinstance(item, list) else None


def _is_other(number: float) -> bool:
    return not isfinite(number) if isinstance(number, float) else abs(number) > _LARGEST
