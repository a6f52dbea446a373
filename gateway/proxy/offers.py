"""What many servers offer, as what one server would say of itself.

Turns lists, capabilities and instructions of several servers into one result in the client's era. Where there is but
one server its own words stay, fields that we don't know included. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from gateway.protocol.eras import result_to_handshake, result_to_modern
from gateway.proxy.upstream.listing import FIELDS, METHODS, Kind, Listed
from gateway.proxy.upstream.task_owners import without_extension

_LISTS: Final = ("tools", "prompts", "resources")
_WORDS: Final = 16_384
RELAYED: Final[Mapping[str, Any]] = {
    "tools": {},
    "prompts": {},
    "resources": {"subscribe": True},
    "logging": {},
    "completions": {},
}
"""What a server may yet offer that was never up: clients ask only for what was announced at the greeting."""


def merge_capabilities(offers: Sequence[Mapping[str, Any]], *, modern: bool = False) -> dict[str, Any]:
    """The union. Changes of lists are always told: a server that comes or goes changes them as well.

    Tasks are offered for a single server only, whose ids are the only ones then, and in the way of the client's era.
    """
    merged: dict[str, Any] = {}
    for offer in offers:
        for name, value in offer.items():
            merged[name] = _union(merged.get(name), value)
    if len(offers) > 1 or modern:
        merged.pop("tasks", None)
    if len(offers) > 1 or not modern:
        merged = without_extension(merged)
    for kind in _LISTS:
        if isinstance(merged.get(kind), dict):
            merged[kind]["listChanged"] = True
    return merged


def _union(one: object, other: object) -> Any:
    if isinstance(one, dict) and isinstance(other, dict):
        left, right = cast("dict[str, Any]", one), cast("dict[str, Any]", other)
        return {**left, **{key: _union(left.get(key), value) for key, value in right.items()}}
    if isinstance(other, dict):
        return dict(cast("dict[str, Any]", other))
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
