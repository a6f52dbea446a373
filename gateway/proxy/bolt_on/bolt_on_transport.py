"""Bolt-on tools as a `Transport`: a server of the modern era that offers nothing but tools.

MCP's other requests are answered here, from the manifests; only calls are sent on, each as a POST of its own. The
accepted maps decide whether a tool is called with ids or with text; this is decided anew whenever they change, and
logged once for each tool. `proxy/upstream/upstream.py` does the rest (supervision, breaker, queue, time limits), as for
any server.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from structlog.typing import FilteringBoundLogger

from gateway.config.gateway_config import UpstreamConfig
from gateway.escape import escape_text
from gateway.observe.metrics import Metrics
from gateway.protocol.eras import NEWEST_MODERN, SERVER_INFO_KEY
from gateway.protocol.messages import INVALID_PARAMS, METHOD_NOT_FOUND
from gateway.proxy.bolt_on.bolt_on_tools import (
    BoltOnStatus,
    HeldMaps,
    MapMiss,
    Match,
    Tool,
    Tools,
    call_lines,
    look,
    match,
    post,
    read_answer,
    read_tools,
    write_call,
)
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds, error_result
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, Pending, Transport
from leaf_sdk.leaf.bolt_on.messages import MAX_CALL_BYTES

_WORDS = 300


class BoltOnTransport:
    """The tools of one upstream."""

    first_number = 0
    unread = ""

    def __init__(
        self,
        config: UpstreamConfig,
        tools: Tools,
        maps: HeldMaps,
        pushes: Exchange,
        client: HttpClient,
        metrics: Metrics,
        called: Callable[[str], None],
        log: FilteringBoundLogger,
        bound: int,
    ) -> None:
        self._config = config
        self._tools = tools.by_name
        self._maps = maps
        self._pushes = pushes
        self._client = client
        self._metrics = metrics
        self._called = called
        self._log = log
        self._bound = min(bound, MAX_CALL_BYTES)
        self._lines = {
            name: call_lines(tool.address, dict(config.headers) if tool.ours else {})
            for name, tool in self._tools.items()
        }
        self._verdicts: dict[str, Match | MapMiss] = {}
        self._sent = 0
        self._closed = asyncio.Event()
        self._match_all()

    @property
    def closed(self) -> asyncio.Event:
        """See `Transport.closed`. Set only by us: a bolt-on that is away may come back."""
        return self._closed

    def use_version(self, version: str) -> None:
        """See `Transport.use_version`. Does nothing: there is only one version."""

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """See `Transport.notify`. Does nothing: a bolt-on is sent only calls."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """See `Transport.request`."""
        match method:
            case "tools/call":
                return {"resultType": "complete", **await self._call(params, written)}
            case "tools/list":
                return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", "tools": self._listed()}
            case "server/discover":
                await self._look()
                return self._described()
            case "subscriptions/listen":
                await self._closed.wait()
                raise LinkLost("the gateway closed the connection")
            case _:
                raise PeerError({"code": METHOD_NOT_FOUND, "message": "Method not found", "data": method})

    def maps_changed(self) -> None:
        """Match every tool against the maps again, and announce a change of the offered tools."""
        before = self._listed()
        self._match_all()
        if self._listed() != before:
            self._pushes.notified("notifications/tools/list_changed", {})

    def statuses(self) -> tuple[BoltOnStatus, ...]:
        """How each tool is called."""
        return tuple(self._status(name, tool) for name, tool in self._tools.items())

    def close(self) -> None:
        """Set `closed`; there is no connection to end."""
        self._closed.set()

    async def _call(self, params: Mapping[str, Any], written: WrittenIds | None) -> dict[str, Any]:
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise PeerError(
                {"code": INVALID_PARAMS, "message": f"no manifest describes a tool named {str(name)[:100]!r}"}
            )
        verdict = self._verdicts[tool.manifest.name]
        if isinstance(verdict, MapMiss) and self._config.require_match:
            self._called("refused")
            return error_result(f"tool {tool.manifest.name!r} may not be called (require_match): {verdict.reason}")
        self._sent += 1
        outgoing = write_call(tool.manifest, verdict, params, written, self._sent, self._metrics)
        self._called(outgoing.form)
        lines = self._lines[tool.manifest.name]
        body = await post(self._client, tool.address, lines, outgoing.call.to_bytes(), self._bound)
        return read_answer(outgoing, body, self._metrics)

    async def _look(self) -> None:
        """Raises LinkLost if no address answers; logs those that don't if others do."""
        refusals: list[LinkLost | NoAnswer] = []
        origins = list(dict.fromkeys(tool.address.origin for tool in self._tools.values()))
        for origin in origins:
            try:
                await look(self._client, origin)
            except (LinkLost, NoAnswer) as error:
                refusals.append(error)
        if len(refusals) == len(origins):
            raise LinkLost(str(refusals[0]), sent=False)
        for error in refusals:
            self._log.warning("a bolt-on can't be reached", cause=escape_text(str(error), _WORDS))

    def _match_all(self) -> None:
        for name, tool in self._tools.items():
            verdict = self._verdicts[name] = match(tool.manifest, self._maps.known)
            words = verdict.reason if isinstance(verdict, MapMiss) else verdict.token_map.map_id
            if self._maps.is_new(self._config.name, name, words):
                self._log_verdict(tool, verdict)

    def _log_verdict(self, tool: Tool, verdict: Match | MapMiss) -> None:
        name = escape_text(tool.manifest.name, _WORDS)
        if isinstance(verdict, Match):
            model = escape_text(verdict.binding.model_id, _WORDS)
            self._log.info("bolt-on is called with ids", tool=name, model=model, map=verdict.token_map.map_id)
            return
        outcome = "its calls are refused (require_match)" if self._config.require_match else "it is called with text"
        self._log.warning(
            f"bolt-on has no ids for an accepted map: {outcome}", tool=name, cause=escape_text(verdict.reason, _WORDS)
        )

    def _listed(self) -> list[dict[str, Any]]:
        return [
            _definition(tool)
            for name, tool in self._tools.items()
            if isinstance(self._verdicts[name], Match) or not self._config.require_match
        ]

    def _described(self) -> dict[str, Any]:
        return {
            "resultType": "complete",
            "supportedVersions": [NEWEST_MODERN],
            "capabilities": {"tools": {"listChanged": True}},
            "_meta": {SERVER_INFO_KEY: {"name": self._config.name, "version": "1"}},
        }

    def _status(self, name: str, tool: Tool) -> BoltOnStatus:
        verdict = self._verdicts[name]
        where = str(tool.address.origin)
        if isinstance(verdict, Match):
            return BoltOnStatus(name, "ids", verdict.binding.model_id or None, where, None)
        return BoltOnStatus(name, "refused" if self._config.require_match else "text", None, where, verdict.reason)


@asynccontextmanager
async def open_bolt_on(
    config: UpstreamConfig,
    pushes: Exchange,
    *,
    bound: int,
    log: FilteringBoundLogger,
    client: HttpClient,
    maps: HeldMaps,
    metrics: Metrics,
    called: Callable[[str], None],
) -> AsyncGenerator[Transport]:
    """Read the manifests and connect to the tools that they describe; no tool is called before the first request.

    Args:
        config: an upstream whose `manifest` is set.
        pushes: told when the tools on tool change.
        bound: longest answer that is read, in bytes; the protocol's own bound applies as well.
        log: receives what is wrong with manifests, and whether each tool matches a map.
        client: shared by all connections.
        maps: the accepted maps.
        metrics: counts ids that are made, decoded and refused.
        called: counts calls by their form.

    Raises:
        LinkLost: no manifest can be used.
    """
    tools = await read_tools(config, client)
    for fault in tools.faults:
        log.warning("a bolt-on is left out", cause=escape_text(fault, _WORDS))
    transport = BoltOnTransport(config, tools, maps, pushes, client, metrics, called, log, bound)
    with maps.informing(config.name, transport):
        try:
            yield transport
        finally:
            transport.close()


def _definition(tool: Tool) -> dict[str, Any]:
    manifest = tool.manifest
    words = {"description": manifest.description} if manifest.description else {}
    return {"name": manifest.name, **words, "inputSchema": {"type": "object", **manifest.arguments_schema}}
