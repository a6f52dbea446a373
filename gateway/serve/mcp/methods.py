"""The answers to every client's requests, regardless of the transport.

Turns a request into a frame with its answer. The gateway itself answers `initialize`, `ping`, `server/discover` and
`subscriptions/listen`, and refuses methods that the client's era does not have. The servers answer all else, and their
answers pass unchanged, except that texts of a tool's result get ids if the client named a token map, and are cut where
the client takes no more. This is the one boundary of the protocol where exceptions become errors for the client. It
knows no transport.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final, cast

import anyio

from gateway.errors import MapUnknown, RpcError, UnknownTool, rpc_error
from gateway.observe.logs import get_logger
from gateway.protocol.eras import (
    HANDSHAKE_VERSIONS,
    MAP_KEY,
    MODERN_VERSIONS,
    NEWEST_HANDSHAKE,
    SERVER_INFO_KEY,
    SUBSCRIPTION_KEY,
    excess_of_capabilities,
    meta_of,
)
from gateway.protocol.messages import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Notification,
    Request,
    RequestId,
    Unwritable,
    encode_failure,
    encode_notification,
    encode_response,
)
from gateway.proxy.caller import Principal
from gateway.proxy.catalog import ListChange
from gateway.proxy.proxy import Proxy
from gateway.proxy.results import CallOutcome, ending_of
from gateway.proxy.shares import ShareRule
from gateway.serve.mcp.large_result_links import ResultLinks, no_result, result_name
from gateway.serve.mcp.recorder import Recorder
from gateway.serve.mcp.result_ids import ClientIds, SessionMaps
from gateway.serve.mcp.sessions import ClientCall, McpSession
from leaf_sdk.vocab import TokenMap

_MOST: Final = 1024
"""The most subscriptions that may be open at the same time."""
_MOST_URIS: Final = 256
"""The most resources that one subscription may watch."""
_LISTS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
_WATCHED: Final = "resourceSubscriptions"


@dataclass(eq=False, slots=True)
class _Subscription:
    request_id: RequestId
    call: ClientCall
    kinds: frozenset[str]
    uris: tuple[str, ...]
    ended: asyncio.Future[None]
    early: set[str] = field(default_factory=set[str])
    """Resources that changed before the acknowledgement, which must be the stream's first frame."""
    acknowledged: bool = False

    def honoured(self) -> dict[str, Any]:
        lists = {name: True for name, kind in _LISTS.items() if kind in self.kinds}
        return lists | ({_WATCHED: list(self.uris)} if self.uris else {})

    def tagged(self) -> dict[str, Any]:
        return {SUBSCRIPTION_KEY: self.request_id}

    def acknowledge(self) -> None:
        """Begin the stream with its acknowledgement."""
        params = {"notifications": self.honoured(), "_meta": self.tagged()}
        self.call.stream.put(encode_notification("notifications/subscriptions/acknowledged", params))
        self.acknowledged = True
        for uri in self.early:
            self.updated(uri)

    def changed(self, change: ListChange) -> None:
        """Report that a server's list changed, unless it changed for a single session only."""
        principal = self.call.principal
        if change.session is not None or change.owner not in (None, principal.owner):
            return
        if change.kind in self.kinds and principal.sees(change.server):
            method = f"notifications/{change.kind}/list_changed"
            self.call.stream.tell(method, {"_meta": self.tagged()}, (method, self.request_id))

    def updated(self, uri: str) -> None:
        """Report that a resource changed, once the stream is acknowledged."""
        if not self.acknowledged:
            self.early.add(uri)
            return
        method = "notifications/resources/updated"
        self.call.stream.tell(method, {"uri": uri, "_meta": self.tagged()}, (method, self.request_id, uri))


class Subscriptions:
    """All open streams."""

    def __init__(self, servers: Proxy, rule: ShareRule) -> None:
        """Watch nothing before the first stream opens. `rule`: how many of the streams one principal may have."""
        self._servers = servers
        self._shares = rule.shares("subscription", _MOST, "subscriptions")
        self._open: set[_Subscription] = set()

    async def listen(self, request_id: RequestId, params: Mapping[str, Any], call: ClientCall) -> dict[str, Any]:
        """Serve one stream until `close` is called or the caller is cancelled. Returns the request's result. Raises
        `RpcError`: the filter is malformed, too many streams are open, or a resource can't be watched."""
        subscription = self._read(request_id, params, call)
        if (over := self._shares.take(call.principal)) is not None:
            raise rpc_error(INTERNAL_ERROR, over.message)
        self._open.add(subscription)
        releases: list[Callable[[], None]] = []
        try:
            if subscription.uris:
                releases.append(await self._servers.watch(subscription.uris, call.principal, subscription.updated))
            subscription.acknowledge()
            releases.append(self._servers.on_change(subscription.changed))
            await subscription.ended
        finally:
            self._open.discard(subscription)
            self._shares.give_back(call.principal)
            for release in releases:
                release()
        return {"resultType": "complete", "_meta": subscription.tagged()}

    def close(self) -> None:
        """End every stream with its result."""
        for subscription in self._open:
            if not subscription.ended.done():
                subscription.ended.set_result(None)

    def _read(self, request_id: RequestId, params: Mapping[str, Any], call: ClientCall) -> _Subscription:
        wanted: object = params.get("notifications")
        if not isinstance(wanted, dict):
            raise _malformed("params.notifications must be an object that says what to listen for")
        asked = cast("dict[str, object]", wanted)
        uris: object = asked.get(_WATCHED, [])
        if not isinstance(uris, list) or not all(isinstance(uri, str) for uri in cast("list[object]", uris)):
            raise _malformed(f"params.notifications.{_WATCHED} must be a list of strings")
        distinct = tuple(dict.fromkeys(cast("list[str]", uris)))
        if len(distinct) > _MOST_URIS:
            raise _malformed(f"params.notifications.{_WATCHED} names more than {_MOST_URIS} resources")
        offered = self._servers.capabilities(call.principal, modern=True)
        kinds = {kind for name, kind in _LISTS.items() if asked.get(name) is True and _offers(offered, kind)}
        ended = asyncio.get_running_loop().create_future()
        watched = distinct if _offers(offered, "resources", "subscribe") else ()
        return _Subscription(request_id, call, frozenset(kinds), watched, ended)


def _offers(capabilities: Mapping[str, Any], kind: str, what: str = "listChanged") -> bool:
    offered: object = capabilities.get(kind)
    return isinstance(offered, dict) and bool(cast("dict[str, object]", offered).get(what))


def _malformed(message: str) -> RpcError:
    return rpc_error(INVALID_PARAMS, message)


CANCELLED: Final = -32800
"""Error code of the answer to a cancelled request, on transports where every request needs an answer."""

OWN_NOTIFICATIONS: Final = frozenset({"notifications/initialized", "notifications/progress"})
"""Notifications of clients that are not passed on to any server."""
SERVER_INFO: Final[Mapping[str, str]] = {"name": "codec-gateway", "version": version("codec-gateway")}
_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
_NOT_MODERN: Final = frozenset(
    {"initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"}
)
_NOT_HANDSHAKE: Final = frozenset({"initialize", "server/discover", "subscriptions/listen"})
_GREETING: Final = 0.2
"""Seconds that a greeting waits for starting servers, so that it can include what the quick ones say about themselves.
No longer, because clients give up on a server that does not greet them soon."""

WrittenAnswer = tuple[bytes, int]
"""A frame, and the code of the error in it; 0: a result."""


class McpCore:
    """The answers of one gateway."""

    def __init__(
        self,
        servers: Proxy,
        maps: SessionMaps,
        *,
        ids: ClientIds,
        links: ResultLinks,
        session_map: TokenMap | None,
        recorder: Recorder | None,
        subscriptions: Subscriptions,
        failed: Callable[[object], None],
    ) -> None:
        """The servers are not asked anything before a client comes.

        Args:
            session_map: the map for clients that name none.
            recorder: records requests; None: nothing is recorded.
            failed: called with the code of every error that answers a request.
        """
        self.servers = servers
        self.maps = maps
        self.session_map = session_map
        self.subscriptions = subscriptions
        self._ids = ids
        self._links = links
        self._recorder = recorder
        self._failed = failed
        self._log = get_logger("gateway.serve.mcp")

    async def answer(
        self, request_id: RequestId, method: str, params: dict[str, Any], call: ClientCall
    ) -> WrittenAnswer:
        """The answer to one request. Raises nothing but a cancellation."""
        record = None if self._recorder is None else self._recorder.begin(request_id, method, params, call)
        try:
            outcome = self._outcome(request_id, method, params, call)
            result = (await (outcome if record is None else record.around(outcome))).result
            answer = encode_response(request_id, result), 0
        except Exception as error:  # noqa: BLE001 - the boundary of this protocol: see `_refused`
            answer = self._refused(request_id, method, error)
        if record is not None:
            record.end(len(answer[0]))
        return answer

    async def greet(
        self, message: Request, session: McpSession, headers: Mapping[str, str] | None, *, alone: bool
    ) -> WrittenAnswer:
        """The answer to `initialize`, without waiting long for servers that are still starting.

        Args:
            headers: see `ClientCall`.
            alone: whether no other client can come (standard input and output), so that this one's capabilities are
                announced to the servers.
        """
        try:
            session.take_results_up_to(self._links.named_limit(message.params, headers))
            return encode_response(message.id, await self._greeting(session, alone=alone)), 0
        except Exception as error:  # noqa: BLE001 - as in `answer`
            return self._refused(message.id, "initialize", error)

    def _refused(self, request_id: RequestId, method: str, raised: Exception) -> WrittenAnswer:
        """The exception as an error for the client. An internal error is not described to the client."""
        match raised:
            case RpcError():
                error: Mapping[str, Any] = raised.error
            case UnknownTool():
                error = {"code": INVALID_PARAMS, "message": raised.message}
            case MapUnknown():
                error = {"code": INVALID_REQUEST, "message": raised.message}
            case Unwritable():
                error = {"code": INTERNAL_ERROR, "message": f"the server's answer can't be passed on: {raised}"}
            case _:
                self._log.error("request failed", method=method[:64], exc_info=raised)
                error = {"code": INTERNAL_ERROR, "message": "internal error of the gateway; its log says more"}
        self._failed(error.get("code"))
        return error_answer(request_id, error)

    async def _greeting(self, session: McpSession, *, alone: bool) -> dict[str, Any]:
        if alone:
            self.servers.adopt(session)
        await self._wait()
        limit = self._links.limit_for(session.result_limit)
        result: dict[str, Any] = {
            "protocolVersion": session.version,
            "capabilities": self._capabilities(session.principal, limit, modern=False),
            "serverInfo": SERVER_INFO,
        }
        if (text := self.servers.instructions(session.principal)) is not None:
            result["instructions"] = text
        return result

    async def pass_on(self, message: Notification, session: McpSession) -> None:
        """Pass a client's notification on to the servers. Raises nothing."""
        try:
            await self.servers.tell(message.method, message.params, session)
        except RpcError as error:
            self._log.debug("a client's notification was not passed on", cause=error.message)
        except Exception:  # noqa: BLE001 - as in `answer`: nobody waits for this
            self._log.exception("notification failed", method=message.method[:64])

    def _outcome(
        self, request_id: RequestId, method: str, params: dict[str, Any], call: ClientCall
    ) -> Coroutine[Any, Any, CallOutcome]:
        """The result of a request, and what else is known about it."""
        try:
            # The map that the request itself names; otherwise the one that its client named before.
            token_map = self.maps.choose(params, call.token_map)
        except MapUnknown as error:
            # Raised only when awaited, so that the recorder sees it.
            return _refuse(error)
        if method != "tools/call":
            return self._of_request(request_id, method, params, call, token_map)
        try:
            named = self._links.named_limit(params, call.headers, call.session)
        except RpcError as error:
            return _refuse(error)
        if named is None and token_map is None and self._recorder is None and not self._links.limit:
            return self.servers.call_tool(params, call)
        return self._of_call(params, call, token_map, named)

    async def _of_request(
        self, request_id: RequestId, method: str, params: dict[str, Any], call: ClientCall, token_map: TokenMap | None
    ) -> CallOutcome:
        result = await self._result(request_id, method, params, call)
        return CallOutcome(result, ending_of(result), map_id=None if token_map is None else token_map.map_id)

    async def _of_call(
        self, params: dict[str, Any], call: ClientCall, token_map: TokenMap | None, named: int | None
    ) -> CallOutcome:
        if token_map is not None:
            params = {**params, "_meta": {**meta_of(params), MAP_KEY: token_map.map_id}}
        outcome = await self.servers.call_tool(params, call)
        name = cast("str", params["name"])
        if self._links.limit_for(named):
            outcome = outcome._replace(result=await self._links.shorten(name, outcome.result, named, call))
        return await self._ids.add(name, outcome, token_map)

    async def _result(
        self, request_id: RequestId, method: str, params: dict[str, Any], call: ClientCall
    ) -> dict[str, Any]:
        if method in (_NOT_MODERN if call.modern else _NOT_HANDSHAKE):
            return _refuse_method(method, call)
        if method == "ping":
            return {}
        if method == "server/discover":
            return await self._discovered(params, call)
        if method == "subscriptions/listen":
            return await self.subscriptions.listen(request_id, params, call)
        if method == "logging/setLevel":
            _set_level(params, call)
        if method == "resources/read" and result_name(params.get("uri")) is not None:
            return await self._read_result(params, call)
        return await self.servers.handle(method, params, call)

    async def _read_result(self, params: dict[str, Any], call: ClientCall) -> dict[str, Any]:
        """A kept result: one of ours, or one of a server's that is a gateway, too."""
        uri: str = params["uri"]
        if self._links.owns(uri):
            return await self._links.read(uri, call)
        try:
            return await self.servers.handle("resources/read", params, call)
        except RpcError as error:
            if error.error.get("code") == INTERNAL_ERROR:
                raise
            raise no_result(uri) from None

    async def _wait(self) -> None:
        with anyio.move_on_after(_GREETING):
            await self.servers.ready()

    async def _discovered(self, params: dict[str, Any], call: ClientCall) -> dict[str, Any]:
        limit = self._links.limit_for(self._links.named_limit(params, call.headers, call.session))
        await self._wait()
        result: dict[str, Any] = {
            "resultType": "complete",
            "supportedVersions": list(MODERN_VERSIONS),
            "capabilities": self._capabilities(call.principal, limit, modern=True),
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {SERVER_INFO_KEY: SERVER_INFO},
        }
        if (text := self.servers.instructions(call.principal)) is not None:
            result["instructions"] = text
        return result

    def _capabilities(self, principal: Principal, limit: int, *, modern: bool) -> dict[str, Any]:
        """Those of the servers, and resources for a client whose results are cut at this limit."""
        offered = self.servers.capabilities(principal, modern=modern)
        return {"resources": {}, **offered} if limit else offered


def error_answer(request_id: RequestId | None, error: Mapping[str, Any]) -> WrittenAnswer:
    """The answer that holds an error."""
    code: object = error.get("code")
    return encode_failure(request_id, error), code if isinstance(code, int) else INTERNAL_ERROR


def invalid_params(message: str) -> RpcError:
    """The error for a mistake in the client's params."""
    return rpc_error(INVALID_PARAMS, message)


def check_greeting(params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The protocol version to answer an `initialize` with, and the client's capabilities.

    An unknown version is answered with the newest one of the handshake era (MCP lifecycle, "Version Negotiation").

    Raises:
        RpcError: the params are not those of `initialize`.
    """
    asked: object = params.get("protocolVersion")
    capabilities: object = params.get("capabilities", {})
    if not isinstance(asked, str):
        raise invalid_params("initialize needs params.protocolVersion as a string")
    if not isinstance(capabilities, dict):
        raise invalid_params("initialize needs params.capabilities as an object")
    announced = cast("dict[str, Any]", capabilities)
    if (why := excess_of_capabilities(announced)) is not None:
        raise invalid_params(f"initialize: params.capabilities: {why}: announce less")
    return (asked if asked in HANDSHAKE_VERSIONS else NEWEST_HANDSHAKE), announced


async def _refuse(error: MapUnknown | RpcError) -> CallOutcome:
    raise error


def _refuse_method(method: str, call: ClientCall) -> dict[str, Any]:
    if method == "initialize" and not call.modern:
        raise rpc_error(INVALID_REQUEST, "this session is already initialized")
    detail = "2026-07-28 has no such method" if call.modern else "it exists only in 2026-07-28"
    raise rpc_error(METHOD_NOT_FOUND, f"unknown method {method!r}: {detail}")


def _set_level(params: Mapping[str, Any], call: ClientCall) -> None:
    level: object = params.get("level")
    if level not in _LEVELS:
        raise invalid_params(f"logging/setLevel needs params.level as one of {', '.join(_LEVELS)}")
    if isinstance(call.session, McpSession):
        call.session.log_level = level
