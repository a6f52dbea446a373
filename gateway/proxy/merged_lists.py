"""The lists of all servers that a client sees, merged into one.

Asks all servers at the same time, leaves out those that don't answer, and filters and renames the rest. A merged list
is kept in the form in which it is sent, as long as every server's list is the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

import anyio

from gateway.errors import UpstreamError
from gateway.observe.logs import get_logger
from gateway.protocol.eras import result_to_handshake, result_to_modern
from gateway.protocol.messages import LastingResult
from gateway.proxy.caller import Caller, Principal
from gateway.proxy.catalog import Catalog
from gateway.proxy.naming import Naming
from gateway.proxy.upstream.items.item_reader import KEYS
from gateway.proxy.upstream.server_lists import ServerList
from gateway.proxy.upstream.session.task_owners import without_extension
from gateway.proxy.upstream.supervision.listing import FIELDS, METHODS, ItemKind, Listed
from gateway.proxy.upstream.upstream import Upstream
from gateway.proxy.uris import rename_in_tool

# If there is only one server, its own words stay as they are, including fields that we don't know.

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
    kind: ItemKind,
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


_KEPT: Final = 64
_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of kept lists, in the form in which they are sent, above which all are dropped."""
ListAnswer = tuple[Upstream, ServerList]
_Key = tuple[ItemKind, bool, object, Naming, int]


@dataclass(frozen=True, slots=True)
class _Merged:
    """A merged list, and the lists it was made from."""

    lists: tuple[Listed, ...]
    eras: tuple[bool, ...]
    """For each list, whether it is in the form of the modern era."""
    result: LastingResult

    def is_of(self, answers: Sequence[ListAnswer]) -> bool:
        return len(self.lists) == len(answers) and all(
            given.listed is mine and given.modern == era
            for (_, given), mine, era in zip(answers, self.lists, self.eras, strict=True)
        )


class Lists:
    """Makes merged lists."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._log = get_logger("gateway.proxy")
        self._kept: dict[_Key, _Merged] = {}

    async def merged(self, kind: ItemKind, upstreams: Sequence[Upstream], caller: Caller) -> LastingResult:
        """Return the result of a list request, in the caller's era."""
        answers = await self._ask_all(kind, upstreams, caller)
        principal = caller.principal
        rights = (principal.servers, principal.tools, principal.within, principal.view)
        key = (kind, caller.modern, rights, self._catalog.naming, self._catalog.uris.version)
        kept = self._kept.get(key)
        if kept is None or not kept.result.written_bytes:
            self._make_room()
        if kept is not None and kept.is_of(answers):
            return kept.result
        lists = tuple(given.listed for _, given in answers)
        eras = tuple(given.modern for _, given in answers)
        alone = list(zip(lists, eras, strict=True)) if len(upstreams) == 1 else ()
        info: Mapping[str, Any] = answers[0][1].info if len(answers) == 1 else {}
        items = self._items(kind, answers, principal)
        result = LastingResult.of(list_result(kind, items, alone, info, modern=caller.modern))
        self._kept[key] = _Merged(lists, eras, result)
        return result

    def _make_room(self) -> None:
        written = sum(each.result.written_bytes for each in self._kept.values())
        if len(self._kept) >= _KEPT or written >= _KEPT_BYTES:
            self._kept.clear()

    async def _ask_all(self, kind: ItemKind, upstreams: Sequence[Upstream], caller: Caller) -> list[ListAnswer]:
        found: dict[str, ListAnswer] = {}
        asked: list[Upstream] = []
        for upstream in upstreams:
            if (at_hand := upstream.lists.at_hand(kind, caller)) is None:
                asked.append(upstream)
            else:
                found[upstream.config.name] = upstream, at_hand

        async def ask(upstream: Upstream) -> None:
            try:
                given = await upstream.lists.get(kind, caller)
            except UpstreamError as error:
                self._log.debug("left out of a list", server=upstream.config.name, kind=kind, cause=error.message)
            else:
                found[upstream.config.name] = upstream, given

        if len(asked) == 1:
            await ask(asked[0])
        elif asked:
            async with anyio.create_task_group() as tasks:
                for upstream in asked:
                    tasks.start_soon(ask, upstream)
        return [found[each.config.name] for each in upstreams if each.config.name in found]

    def _items(self, kind: ItemKind, answers: Sequence[ListAnswer], principal: Principal) -> list[dict[str, Any]]:
        items: dict[str, dict[str, Any]] = {}
        for upstream, given in answers:
            for name, item in self._named(kind, upstream, given.listed, principal):
                items.setdefault(name, item)
        return list(items.values())

    def _named(
        self, kind: ItemKind, upstream: Upstream, listed: Listed, principal: Principal
    ) -> list[tuple[str, dict[str, Any]]]:
        server, public = upstream.config.name, self._catalog.public_uris.public
        if kind == "tools":
            entries = self._catalog.naming.entries(server, listed.items)
            rename = partial(public, server, principal=principal)
            mine = [entry for entry in entries if self._catalog.is_owner(server, entry.name)]
            shown = self._catalog.shown(mine, principal)
            return [(entry.name, rename_in_tool(entry.definition, rename)) for entry in shown]
        if kind == "prompts":
            named = [(self._catalog.naming.prompt(server, item["name"]), item) for item in listed.items]
            return [(name, {**item, "name": name}) for name, item in named if name is not None]
        key = KEYS[kind]
        seen = [item for item in listed.items if self._catalog.naming.shows(server, item[key])]
        uris = [public(server, item[key], principal, is_template=kind == "templates") for item in seen]
        return [(uri, {**item, key: uri}) for uri, item in zip(uris, seen, strict=True)]
