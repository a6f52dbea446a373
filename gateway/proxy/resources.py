"""Requests about one resource: which server they are for, and whether the gateway watches the resource itself.

Turns `resources/read`, `resources/subscribe` and `resources/unsubscribe` into requests to the server that owns the URI.
For a client without a session of its own with that server, the gateway watches the resource instead. It knows no lists
and no names.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.public_uris import Located
from gateway.proxy.resolver import Resolver
from gateway.proxy.result_uris import rename_in_result
from gateway.proxy.upstream.session.session import rpc_error
from gateway.proxy.upstream.upstream import Upstream

Watch = Callable[[Collection[str], Principal, Callable[[str], None]], Awaitable[Callable[[], None]]]
Ask = Callable[[Upstream, str, dict[str, Any], Caller], Awaitable[dict[str, Any]]]


class Resources:
    """Handles the methods about one resource."""

    def __init__(self, resolver: Resolver, watch: Watch, ask: Ask) -> None:
        """`watch`: see `Proxy.watch`. `ask` sends a request to a server."""
        self._resolver = resolver
        self._watch = watch
        self._ask = ask
        self._subscribed: dict[ClientSession, dict[str, Callable[[], None]]] = {}

    async def read(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Send the request to the URI's owner, and to no other server."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise rpc_error(INVALID_PARAMS, f"{method} needs the resource's URI, as a string, in params.uri")
        await self._resolver.learn_uri(uri, caller)
        located = self._resolver.locate(uri, caller.principal, caller)
        if located is None:
            raise self._resolver.no_resource(uri, caller.principal)
        upstream = self._resolver.upstream(located.server, caller.principal)
        result = await self._ask(upstream, method, {**params, "uri": located.uri}, caller)
        # The client finds the resource under the URI that it asked for, even if lists show another.
        listed = self._resolver.public_uri(located, caller.principal)
        return rename_in_result(result, lambda each: uri if each == listed else each) if listed != uri else result

    async def subscribe(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Subscribe on the client's own session with the server if there is one; else watch the resource for it."""
        uri, session = params.get("uri"), caller.session
        if isinstance(uri, str):
            await self._resolver.learn_uri(uri, caller)
        located = self._resolver.locate(uri, caller.principal, caller) if isinstance(uri, str) else None
        if session is None or located is None or self._has_own(located, caller):
            return await self.read(method, params, caller)
        watched = self._subscribed.setdefault(session, {})
        if uri not in watched:
            stop = await self._watch(
                [str(uri)],
                caller.principal,
                lambda updated: session.notified("notifications/resources/updated", {"uri": updated}),
            )
            if uri in watched or self._subscribed.get(session) is not watched:
                # The client subscribed twice at the same time, or has disconnected meanwhile.
                stop()
            else:
                watched[str(uri)] = stop
        return {}

    async def unsubscribe(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """End what `subscribe` began. Never unsubscribes on a shared session, where it could be another client's."""
        uri = params.get("uri")
        watched = self._subscribed.get(caller.session, {}) if caller.session is not None else {}
        stop = watched.pop(str(uri), None)
        if stop is not None:
            stop()
            return {}
        located = self._resolver.locate(uri, caller.principal, caller) if isinstance(uri, str) else None
        if located is None or self._has_own(located, caller):
            return await self.read(method, params, caller)
        return {}

    def _has_own(self, located: Located, caller: Caller) -> bool:
        return self._resolver.upstream(located.server, caller.principal).selector.has_own(caller)

    def forget(self, session: ClientSession) -> None:
        """End all watches for a client that has disconnected."""
        for stop in self._subscribed.pop(session, {}).values():
            stop()
