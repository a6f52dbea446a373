"""Tries out everything that a configuration names: each server is started, asked what it offers, and ended again.

Turns a `GatewayConfig` into findings. Each server has a proxy of its own, so that one that hangs or shares a name with
another hides nothing. A tool is called only if it says that it changes nothing, and if it needs no arguments. It prints
nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from time import perf_counter
from typing import Any, Final, cast

import anyio
import anyio.to_thread

from gateway.agent.calls.request_tools import find_forms
from gateway.app.mcp_services import open_sign_ins
from gateway.config.gateway_config import EngineConfig, GatewayConfig, UpstreamConfig
from gateway.config.show import secrets_of
from gateway.engine.embedded.engine_process import sound_model
from gateway.engine.start.maps import MapSet, has_no_model
from gateway.engine.start.readiness import EngineRoute
from gateway.errors import ConfigError, EngineError, GatewayError, ModelUnusable
from gateway.escape import escape_text, mask_text
from gateway.observe.metrics import Metrics
from gateway.proxy.bolt_on import BoltOnStatus
from gateway.proxy.caller import NOBODY
from gateway.proxy.catalog import Catalog
from gateway.proxy.costs import DefinitionCosts
from gateway.proxy.naming import Aliases, Naming, ToolEntry
from gateway.proxy.proxy import Proxy
from gateway.proxy.upstream.items.tool_pins import changed_tools
from gateway.proxy.upstream.supervision.listing import Listed
from gateway.serve.admin.advice import Judgement, advice_for, advice_on_context, can_be_tried, judge
from gateway.toolcalls.schema.spec import read_tools

_AT_A_TIME: Final = 4
_CALL_TIME: Final = 10.0
_NAME: Final = 128
_CAUSE: Final = 300


@dataclass(frozen=True, slots=True)
class ToolCheck:
    """One tool."""

    name: str
    """As clients see it."""
    tokens: int
    estimated: bool
    ids: Judgement


@dataclass(frozen=True, slots=True)
class ServerCheck:
    """One server."""

    name: str
    transport: str
    reached: bool
    seconds: float
    """Until it had started and listed what it offers, or failed."""
    protocol: str | None = None
    capabilities: tuple[str, ...] = ()
    tools: tuple[ToolCheck, ...] = ()
    prompts: int = 0
    resources: int = 0
    bolt_ons: tuple[BoltOnStatus, ...] = ()
    """How each of its tools is called, if they are bolt-ons."""
    problems: tuple[str, ...] = ()
    """Why it can't be used; empty if it can."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Checkup:
    """All findings."""

    servers: tuple[ServerCheck, ...]
    engine: str
    """What was found out about the engine, in words."""
    maps: tuple[str, ...]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def is_well(self) -> bool:
        """Whether a gateway with this configuration would have everything that it names."""
        return not self.problems and not any(server.problems for server in self.servers)


async def check_up(config: GatewayConfig, *, may_call: bool = True) -> Checkup:
    """Try out everything, four servers at a time. One may take `limits.start_timeout`, and 10 s for each tool call.

    Args:
        may_call: whether tools that say they change nothing may be called.
    """
    maps, engine, problems, context = await _check_engine(config)
    checks: dict[str, ServerCheck] = {}
    lists: dict[str, Mapping[str, Listed | None]] = {}
    limiter = anyio.CapacityLimiter(_AT_A_TIME)

    async def check(upstream: UpstreamConfig) -> None:
        async with limiter:
            checks[upstream.name], lists[upstream.name] = await _check_server(config, upstream, maps, may_call=may_call)

    async with anyio.create_task_group() as tasks:
        for upstream in config.upstreams:
            tasks.start_soon(check, upstream)
    unrendered = await _unrendered(config, lists)
    catalog = Catalog(Naming(config))
    catalog.rebuild({upstream.name: lists[upstream.name] for upstream in config.upstreams})
    return Checkup(
        servers=tuple(checks[upstream.name] for upstream in config.upstreams),
        engine=engine,
        maps=tuple(maps.accepted),
        problems=(*problems, *map(str, catalog.clashes)),
        warnings=(
            *(mask_text(each, secrets_of(config)) for each in config.warnings),
            *_broken_pins(config),
            *_left_out(maps),
            *(escape_text(each, _CAUSE) for each in catalog.misplaced),
            *unrendered,
            *_heavy(checks.values(), context, config),
        ),
    )


def _heavy(checks: Iterable[ServerCheck], context: int | None, config: GatewayConfig) -> list[str]:
    tokens = sum(tool.tokens for check in checks for tool in check.tools)
    advice = advice_on_context(tokens, context, config.tool_search)
    return [] if advice is None else [advice]


async def _check_engine(config: GatewayConfig) -> tuple[MapSet, str, list[str], int | None]:
    """Return the maps, what is known about the engine, what is wrong with either, and the context of each slot.

    A remote engine proves every map; if there are several, each of them does.
    """
    if has_no_model(config):
        return MapSet(), "none", [], None
    if not config.engines:
        return await _check_member(config)
    found: dict[str, tuple[MapSet, str, list[str], int | None]] = {}

    async def check(name: str, settings: EngineConfig) -> None:
        found[name] = await _check_member(replace(config, engine=settings, engines={}))

    async with anyio.create_task_group() as tasks:
        for name, settings in config.engines.items():
            tasks.start_soon(check, name, settings)
    maps, words, problems = MapSet(), list[str](), list[str]()
    for name in config.engines:
        known, said, wrong, _ = found[name]
        maps.update(known)
        words.append(f"{name}: {said}")
        problems += [f"engine {name!r}: {each}" for each in wrong]
    contexts = [context for _, _, _, context in found.values() if context is not None]
    return maps, "; ".join(words), problems, min(contexts, default=None)


async def _check_member(config: GatewayConfig) -> tuple[MapSet, str, list[str], int | None]:
    try:
        route = EngineRoute(config, lambda up, reason: None)
        if config.engine.kind != "url":
            if config.engine.kind == "none":
                return route.maps, "none", [], None
            model, _ = await sound_model(config.engine)
            engine = f"embedded, {model.name} (not started by this check)"
            return route.maps, engine, [], config.engine.context // config.engine.slots
        async with route.running():
            engine, problems, context = _ask(route, config.engine)
        return route.maps, engine, problems, context
    except (ConfigError, ModelUnusable) as error:
        return MapSet(), config.engine.kind, [error.message], None


def _ask(route: EngineRoute, settings: EngineConfig) -> tuple[str, list[str], int | None]:
    try:
        facts = route.ready().facts
    except EngineError as error:
        return "down", [error.message], None
    whose = "the gateway" if settings.exclusive or settings.own_slots else "the engine (engine.exclusive is off)"
    slots = f"{facts.model}, {facts.slots} slots of {facts.context} tokens, chosen by {whose}"
    # Where the server chooses, it was not found out.
    return slots + _CACHES.get(facts.can.rewind, ""), [], facts.context


_CACHES: Final[Mapping[str, str]] = {
    "window": ", with sliding windows: their caches go back to checkpoints",
    "checkpoints": ", with recurrent layers: their caches go back to checkpoints",
}


async def _unrendered(config: GatewayConfig, lists: Mapping[str, Mapping[str, Listed | None]]) -> list[str]:
    """What is wrong with tools for the engines at URLs; an embedded engine is not started by this check."""
    found: dict[str, None] = {}
    for settings in config.members.values():
        if settings.kind == "url":
            found |= dict.fromkeys(await _unrendered_by(replace(config, engine=settings, engines={}), lists))
    return [mask_text(escape_text(each, _CAUSE), secrets_of(config)) for each in found]


async def _unrendered_by(config: GatewayConfig, lists: Mapping[str, Mapping[str, Listed | None]]) -> list[str]:
    try:
        route = EngineRoute(config, lambda up, reason: None)
        async with route.running():
            return await _faults(route, lists)
    except ConfigError:
        # It is reported already.
        return []


async def _faults(route: EngineRoute, lists: Mapping[str, Mapping[str, Listed | None]]) -> list[str]:
    """Caught here, inside the engine's task group: what is wrong with the engine is reported already."""
    try:
        ready = route.ready()
        for server, listed in lists.items():
            offered = listed.get("tools")
            tools = read_tools(offered.items) if offered is not None else ()
            await find_forms(tools, ready, {tool.name: server for tool in tools}.get)
    except EngineError:
        return []
    return [fault.message for fault in ready.forms.reported]


async def _check_server(
    config: GatewayConfig, upstream: UpstreamConfig, maps: MapSet, *, may_call: bool
) -> tuple[ServerCheck, Mapping[str, Listed | None]]:
    alone = replace(config, upstreams=(replace(upstream, start="eager", idle_stop=0.0),), views={}, prefix="always")
    began = perf_counter()
    async with (
        open_sign_ins(config) as grants,
        Proxy(alone, Metrics(), maps=maps, start_wait=inf, grants=grants) as proxy,
    ):
        seconds = perf_counter() - began
        (status,) = proxy.statuses()
        found = ServerCheck(upstream.name, upstream.transport, status.state == "up", round(seconds, 3))
        if not found.reached:
            why = status.last_error or f"not up within {config.limits.start_timeout:g} s (limits.start_timeout)"
            return replace(found, problems=(why,)), {}
        tools = await _check_tools(proxy, Naming(config), maps, upstream.secrets, may_call=may_call)
        found = replace(
            found,
            protocol=status.protocol,
            capabilities=tuple(sorted(status.offers)),
            tools=tools,
            prompts=status.prompts,
            resources=status.resources,
            bolt_ons=tuple(_escaped(each) for each in status.bolt_ons),
        )
        counts = {tool.name: (tool.tokens, tool.ids) for tool in tools}
        names = [Naming(config).tool(each.server, each.tool) or each.name for each in proxy.tools()]
        aliases = _aliases(names, config)
        told = advice_for(upstream, proxy.tools(), counts, status.invalid_tools, status.malformed, aliases)
        advice = (*told, *_misses(found, "text"))
        found = replace(found, warnings=advice, problems=_misses(found, "refused"))
        return found, await _own_lists(proxy, Naming(alone).prefix(upstream.name))


def _aliases(names: Sequence[str], config: GatewayConfig) -> dict[str, str | None]:
    """Under what models are offered those of a server's tools whose names model APIs refuse."""
    aliases = Aliases()
    aliases.assign(names)
    unsafe = {escape_text(name, _NAME): aliases.alias_of(name) for name in names if aliases.alias_of(name) != name}
    return dict.fromkeys(unsafe) if config.safe_names is False else {**unsafe}


async def _check_tools(
    proxy: Proxy, naming: Naming, maps: MapSet, secrets: frozenset[str], *, may_call: bool
) -> tuple[ToolCheck, ...]:
    costs = DefinitionCosts(lambda: maps.session)
    entries = proxy.tools()
    # Counted under the names that `serve` gives them, so that both say the same.
    served = [replace(each, name=naming.tool(each.server, each.tool) or each.name) for each in entries]
    (status,) = proxy.statuses()
    bolt_ons = {each.tool: _judge_bolt_on(each) for each in status.bolt_ons}
    await anyio.to_thread.run_sync(costs.count, served)
    checks: list[ToolCheck] = []
    for entry, name, cost in zip(entries, (each.name for each in served), map(costs.of, served), strict=True):
        tried = bolt_ons.get(entry.tool) or await _try(proxy, entry, maps, may_call=may_call)
        ids = replace(tried, detail=mask_text(tried.detail, secrets))
        checks.append(ToolCheck(escape_text(name, _NAME), cost.tokens, cost.estimated, ids))
    return tuple(checks)


def _misses(found: ServerCheck, mode: str) -> tuple[str, ...]:
    outcome = {"text": "is called with text", "refused": "is refused (require_match)"}[mode]
    return tuple(f"tool {each.tool!r} {outcome}: {each.reason}" for each in found.bolt_ons if each.mode == mode)


def _judge_bolt_on(bolt_on: BoltOnStatus) -> Judgement:
    """Judge a bolt-on by what its manifest says, which needs no call."""
    if bolt_on.reason is None:
        return Judgement("leaf", "it answers in ids of an accepted map")
    return Judgement("shim", escape_text(bolt_on.reason, _CAUSE))


def _escaped(bolt_on: BoltOnStatus) -> BoltOnStatus:
    said = {key: None if value is None else escape_text(value, _CAUSE) for key, value in asdict(bolt_on).items()}
    return replace(bolt_on, **said)


async def _try(proxy: Proxy, entry: ToolEntry, maps: MapSet, *, may_call: bool) -> Judgement:
    why_not = "no tool is called (--no-call)" if not may_call else can_be_tried(entry.definition)
    if why_not is not None:
        return Judgement("unknown", why_not)
    try:
        result = await proxy.call(entry.name, {}, timeout=_CALL_TIME)
    except GatewayError as error:
        return Judgement("unknown", f"its call failed: {escape_text(error.message, _CAUSE)}")
    return judge(result, maps.accepted)


async def _own_lists(proxy: Proxy, prefix: str) -> dict[str, Listed]:
    """What the server lists, under its own names: from these the catalog finds names that two servers share."""
    tools = [{**entry.definition, "name": entry.tool} for entry in proxy.tools()]
    prompts = [{**each, "name": each["name"].removeprefix(prefix)} for each in await _ask_for(proxy, "prompts")]
    found = {"tools": tools, "prompts": prompts, "resources": await _ask_for(proxy, "resources")}
    return {kind: Listed(tuple(items), {}) for kind, items in found.items()}


async def _ask_for(proxy: Proxy, kind: str) -> list[dict[str, Any]]:
    try:
        listed: object = (await proxy.handle(f"{kind}/list", {}, NOBODY)).get(kind)
    except GatewayError:
        return []
    return cast("list[dict[str, Any]]", listed) if isinstance(listed, list) else []


def _left_out(maps: MapSet) -> list[str]:
    return [
        f"token map {map_id!r} leaves out {', '.join(escape_text(token, _NAME) for token in tokens)}, which the engine "
        "treats as control tokens: they count as special too"
        for map_id, tokens in maps.left_out.items()
    ]


def _broken_pins(config: GatewayConfig) -> list[str]:
    try:
        changes = changed_tools(config)
    except ConfigError as error:
        return [error.message]
    shown = "is not the pinned one: see codec-gateway pins show"
    return [f"server {each.server!r}: the definition of tool {each.tool!r} {shown}" for each in changes]
