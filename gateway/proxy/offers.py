"""What several servers offer, in the words of a single server.

Turns lists, capabilities and instructions of several servers into one result in the client's era. If there is only one
server, its own words stay as they are, including fields that we don't know. Pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from gateway.protocol.eras import result_to_handshake, result_to_modern
from gateway.proxy.upstream.session.task_owners import without_extension
from gateway.proxy.upstream.supervision.listing import FIELDS, METHODS, Kind, Listed

_LISTS: Final = ("tools", "prompts", "resources")
_WORDS: Final = 16_384
RELAYED: Final[Mapping[str, Any]] = {
    "tools": {},
    "prompts": {},
    "resources": {"subscribe": True},
    "logging": {},
    "completions": {},
}
"""What a server that was never up may offer later: clients use only what was announced when they connected."""


def merge_capabilities(offers: Sequence[Mapping[str, Any]], *, modern: bool = False) -> dict[str, Any]:
    """The union of all offers. `listChanged` is always set: a server that comes or goes changes the lists as well.

    Tasks are offered only for a single server, whose ids can't clash with another's, and in the form of the client's
    era.
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
    """The servers' instructions, each under its name; a single server's stay as they are. `words`: names and texts."""
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
    """Return the result of a list request.

    Args:
        items: what clients see of all servers.
        lists: what each server listed, and whether it did so in the modern era.
        info: the server info for a modern client if the server itself gave none.
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
