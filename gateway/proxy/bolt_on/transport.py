"""Bolt-on tools as a `Transport`: a server of the modern era that offers nothing but tools.

What MCP asks of a server is answered here, from the manifests; only calls go out, each as a POST of its own. Whether a
tool is called with ids or with text follows the accepted maps, and is judged anew whenever these change; a person is
told once a tool. Supervision, breaker, queue and time limits are `proxy/upstream/upstream.py`'s, as for any server.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.observe.escape import escape_text
from gateway.protocol.eras import NEWEST_MODERN, SERVER_INFO_KEY
from gateway.protocol.messages import INVALID_PARAMS, METHOD_NOT_FOUND
from gateway.proxy.bolt_on.calling import CallMetrics, read_answer, write_call
from gateway.proxy.bolt_on.matching import BoltOnStatus, HeldMaps, Match, Miss, match
from gateway.proxy.bolt_on.offers import Offer, Offers, read_offers
from gateway.proxy.bolt_on.posting import call_lines, look, post
from gateway.proxy.caller import Exchange
from gateway.proxy.results import WrittenIds, error_result
from gateway.proxy.transport.http.client import HttpClient
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError, Pending, Transport
from leaf_sdk.leaf.bolt_on.messages import MAX_CALL_BYTES

_WORDS = 300


class BoltOnTransport:
    """The tools of one upstream."""

    correlates = True
    first_number = 0

    def __init__(
        self,
        config: UpstreamConfig,
        offers: Offers,
        maps: HeldMaps,
        pushes: Exchange,
        client: HttpClient,
        metrics: CallMetrics,
        called: Callable[[str], None],
        log: FilteringBoundLogger,
        bound: int,
    ) -> None:
        self._config = config
        self._offers = offers.by_name
        self._maps = maps
        self._pushes = pushes
        self._client = client
        self._metrics = metrics
        self._called = called
        self._log = log
        self._bound = min(bound, MAX_CALL_BYTES)
        self._lines = {
            name: call_lines(offer.address, dict(config.headers) if offer.ours else {})
            for name, offer in self._offers.items()
        }
        self._verdicts: dict[str, Match | Miss] = {}
        self._sent = 0
        self._closed = asyncio.Event()
        self._judge()

    @property
    def closed(self) -> asyncio.Event:
        """As `Transport.closed`: we left. A bolt-on that is away may come back."""
        return self._closed

    def speak(self, version: str) -> None:
        """As `Transport.speak`: there is one version."""

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """As `Transport.notify`: a bolt-on hears nothing but calls."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        exchange: Pending | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        written: WrittenIds | None = None,
    ) -> dict[str, Any]:
        """As `Transport.request`."""
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
        """Judge anew, and say so where other tools are offered now."""
        before = self._listed()
        self._judge()
        if self._listed() != before:
            self._pushes.notified("notifications/tools/list_changed", {})

    def statuses(self) -> tuple[BoltOnStatus, ...]:
        """How each tool is called."""
        return tuple(self._status(name, offer) for name, offer in self._offers.items())

    def close(self) -> None:
        """Nothing is sent any more."""
        self._closed.set()

    async def _call(self, params: Mapping[str, Any], written: WrittenIds | None) -> dict[str, Any]:
        name = params.get("name")
        offer = self._offers.get(name) if isinstance(name, str) else None
        if offer is None:
            raise PeerError({"code": INVALID_PARAMS, "message": f"no bolt-on is called {str(name)[:100]!r}"})
        verdict = self._verdicts[offer.manifest.name]
        if isinstance(verdict, Miss) and self._config.require_match:
            self._called("refused")
            return error_result(f"tool {offer.manifest.name!r} is refused (require_match): {verdict.reason}")
        self._sent += 1
        outgoing = write_call(offer.manifest, verdict, params, written, self._sent, self._metrics)
        self._called(outgoing.form)
        lines = self._lines[offer.manifest.name]
        body = await post(self._client, offer.address, lines, outgoing.call.to_bytes(), self._bound)
        return read_answer(outgoing, body, self._metrics)

    async def _look(self) -> None:
        """Raises LinkLost: nobody is there, at none of the places."""
        refusals: list[LinkLost | NoAnswer] = []
        origins = list(dict.fromkeys(offer.address.origin for offer in self._offers.values()))
        for origin in origins:
            try:
                await look(self._client, origin)
            except (LinkLost, NoAnswer) as error:
                refusals.append(error)
        if len(refusals) == len(origins):
            raise LinkLost(str(refusals[0]), sent=False)
        for error in refusals:
            self._log.warning("a bolt-on is away", cause=escape_text(str(error), _WORDS))

    def _judge(self) -> None:
        for name, offer in self._offers.items():
            verdict = self._verdicts[name] = match(offer.manifest, self._maps.known)
            words = verdict.reason if isinstance(verdict, Miss) else verdict.token_map.map_id
            if self._maps.is_new(self._config.name, name, words):
                self._tell(offer, verdict)

    def _tell(self, offer: Offer, verdict: Match | Miss) -> None:
        tool = escape_text(offer.manifest.name, _WORDS)
        if isinstance(verdict, Match):
            model = escape_text(verdict.binding.model_id, _WORDS)
            self._log.info("bolt-on speaks our ids", tool=tool, model=model, map=verdict.token_map.map_id)
            return
        outcome = "it is refused (require_match)" if self._config.require_match else "it is called with text"
        self._log.warning(f"bolt-on speaks other ids: {outcome}", tool=tool, cause=escape_text(verdict.reason, _WORDS))

    def _listed(self) -> list[dict[str, Any]]:
        return [
            _definition(offer)
            for name, offer in self._offers.items()
            if isinstance(self._verdicts[name], Match) or not self._config.require_match
        ]

    def _described(self) -> dict[str, Any]:
        return {
            "resultType": "complete",
            "supportedVersions": [NEWEST_MODERN],
            "capabilities": {"tools": {"listChanged": True}},
            "_meta": {SERVER_INFO_KEY: {"name": self._config.name, "version": "1"}},
        }

    def _status(self, name: str, offer: Offer) -> BoltOnStatus:
        verdict = self._verdicts[name]
        where = str(offer.address.origin)
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
    metrics: CallMetrics,
    called: Callable[[str], None],
) -> AsyncGenerator[Transport]:
    """Read the manifests and speak to what they describe; no tool is called before the first request.

    Args:
        config: an upstream whose `manifest` is set.
        pushes: who hears that other tools are offered.
        bound: longest answer that is read, in bytes; the protocol has a bound of its own.
        log: receives what is wrong with manifests, and whether each tool matches.
        client: what all connections share.
        maps: the accepted maps.
        metrics: counts ids that are made, read and refused.
        called: counts calls by their form.

    Raises:
        LinkLost: there is no manifest that can be used.
    """
    offers = await read_offers(config, client)
    for fault in offers.faults:
        log.warning("a bolt-on is left out", cause=escape_text(fault, _WORDS))
    transport = BoltOnTransport(config, offers, maps, pushes, client, metrics, called, log, bound)
    with maps.guiding(config.name, transport):
        try:
            yield transport
        finally:
            transport.close()


def _definition(offer: Offer) -> dict[str, Any]:
    manifest = offer.manifest
    words = {"description": manifest.description} if manifest.description else {}
    return {"name": manifest.name, **words, "inputSchema": {"type": "object", **manifest.arguments_schema}}
