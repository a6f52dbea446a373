"""`subscriptions/listen` of 2026-07-28: streams of changes, which stay open until the client or the gateway ends them.

Turns the changes that servers report into notifications for each open subscription: only of the kinds that it asked
for, only from servers that its client may see, each with the subscription's id. It knows no transport.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from gateway.errors import RpcError, rpc_error
from gateway.protocol.eras import SUBSCRIPTION_KEY
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS, RequestId, encode_notification
from gateway.proxy.caller import ShareRule
from gateway.proxy.catalog import ListChange
from gateway.proxy.proxy import Proxy
from gateway.serve.mcp.sessions import ClientCall

_MOST: Final = 1024
"""The most subscriptions that may be open at the same time."""
_MOST_URIS: Final = 256
"""The most resources that one subscription may watch."""
_LISTS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
_WATCHED: Final = "resourceSubscriptions"


@dataclass(eq=False, slots=True)
class _Subscription:
    """One open stream."""

    request_id: RequestId
    call: ClientCall
    kinds: frozenset[str]
    uris: tuple[str, ...]
    ended: asyncio.Future[None]
    early: set[str] = field(default_factory=set[str])
    """Resources that changed before the acknowledgement, which must be the stream's first frame."""
    acknowledged: bool = False

    def honoured(self) -> dict[str, Any]:
        """The part of the requested filter that is honoured."""
        lists = {name: True for name, kind in _LISTS.items() if kind in self.kinds}
        return lists | ({_WATCHED: list(self.uris)} if self.uris else {})

    def tagged(self) -> dict[str, Any]:
        """The `_meta` of every frame."""
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
        """Serve one stream until `close` is called or the caller is cancelled. Returns the request's result.

        Raises:
            RpcError: the filter is malformed, too many streams are open, or a resource can't be watched.
        """
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
