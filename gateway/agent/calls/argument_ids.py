"""The ids in which a model wrote a call's arguments, for a tool that reads ids.

Turns the ids of a call's region, markers included, into the run of them that spells just a JSON object: the arguments,
or the whole call as most models write it. The run must begin and end on token boundaries and must mean what the parser
read; where it does not (arguments in tags, a repaired brace, a marker that shares a token with the object) there is no
run, and the arguments go out as text. Nothing is encoded or decoded for this: the bytes of each token are looked up, as
the parser does. It knows no server.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple, cast

from leaf_sdk.vocab import TokenMap

_NO_TEXT: Final = b"\xff"
"""Stands for an id that the map does not have: no JSON contains this byte."""


class ArgumentIds(NamedTuple):
    """Ids that spell an object."""

    ids: tuple[int, ...]
    name: str | None
    """The tool's name, where the ids spell a whole call; None: they spell only the arguments."""


def spelled_arguments(
    region: Sequence[int], token_map: TokenMap, name: str, arguments: Mapping[str, Any]
) -> ArgumentIds | None:
    """The ids between the markers of `region`, if they spell this call.

    Args:
        region: a closed call's ids, both markers included.
        name: the tool's name as the model knows it.
        arguments: what the parser read.
    """
    pieces = [token_map.token_bytes(each) if token_map.has_id(each) else _NO_TEXT for each in region]
    text = b"".join(pieces)
    start, end = text.find(b"{"), text.rfind(b"}") + 1
    if start < 0 or end <= start:
        return None
    ends = list(accumulate(map(len, pieces)))
    first = next(n for n, at in enumerate(ends) if at > start)
    last = next(n for n, at in enumerate(ends) if at >= end)
    ids = tuple(region[first : last + 1])
    before, after = text[ends[first] - len(pieces[first]) : start], text[end : ends[last]]
    # Whitespace may share a token with the object: JSON ignores it.
    if before.strip() or after.strip() or not token_map.special_ids.isdisjoint(ids):
        return None
    return _judged(ids, text[start:end], name, arguments)


def _judged(ids: tuple[int, ...], written: bytes, name: str, arguments: Mapping[str, Any]) -> ArgumentIds | None:
    try:
        said: object = json.loads(written)
    except (ValueError, RecursionError):
        return None
    if said == arguments:
        return ArgumentIds(ids, None)
    whole = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
    is_call = whole.get("name") == name and whole.get("arguments", whole.get("parameters")) == arguments
    return ArgumentIds(ids, name) if is_call else None
