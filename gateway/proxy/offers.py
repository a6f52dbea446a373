"""What many servers offer, as what one server would say of itself.

Turns lists, capabilities and instructions of several servers into one result in the client's era. Where there is but
one server its own words stay, fields that we don't know included. Pure. `proxy.py` stands above.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from gateway.proxy.upstreams.listing import FIELDS, METHODS, Kind, Listed
from gateway.rpc.eras import result_to_handshake, result_to_modern

_LISTS: Final = ("tools", "prompts", "resources")
_WORDS: Final = 16_384


def merge_capabilities(offers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The union. Changes of lists are always told: a server that comes or goes changes them as well.

    The methods of tasks name no tool, so with several servers nobody could say whose task is meant.
    """
    merged: dict[str, Any] = {}
    for offer in offers:
        for name, value in offer.items():
            merged[name] = _union(merged.get(name), value)
    if len(offers) > 1:
        merged.pop("tasks", None)
    for kind in _LISTS:
        if isinstance(merged.get(kind), dict):
            merged[kind]["listChanged"] = True
    return merged


def _union(one: object, other: object) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast(dict[str, Any], one), cast(dict[str, Any], other)
        return {**left, **{key: _union(left.get(key), value) for key, value in right.items()}}
    if isinstance(other, dict):
        return dict(cast(dict[str, Any], other))
    return (one or other) if isinstance(one, bool) and isinstance(other, bool) else other


def merge_instructions(words: Sequence[tuple[str, str]]) -> str | None:
    """The servers' instructions, each under its name; those of a single server as they are. `words`: name and text."""
    if len(words) == 1:
        return words[0][1]
    text = "\n\n".join(f"# {name}\n\n{text}" for name, text in words)
    return text[:_WORDS] or None


def list_result(
    kind: Kind,
    items: list[dict[str, Any]],
    lists: Sequence[tuple[Listed, bool]],
    info: Mapping[str, Any],
    *,
    modern: bool,
) -> dict[str, Any]:
    """The result of a list request.

    Args:
        items: what clients see, all servers together.
        lists: what each server listed, and whether it did so in the modern era.
        info: the server info for a modern client where the server itself gave none.
        modern: the client's era.
    """
    field, method = FIELDS[kind], METHODS[kind]
    if len(lists) == 1:
        listed, from_modern = lists[0]
        result: dict[str, Any] = {**listed.around, field: items}
        if from_modern == modern:
            return result
        return result_to_modern(method, result, info) if modern else result_to_handshake(result)
    return result_to_modern(method, {field: items}, info) if modern else {field: items}
