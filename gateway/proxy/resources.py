"""Requests that name a resource by its URI: which server they are for, and who watches for whom.

Turns `resources/read`, `resources/subscribe` and `resources/unsubscribe` into requests to the server that owns the URI,
or into this gateway's own watching for a client for whom its server holds no session. It knows no lists and no names.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from gateway.observe.escape import escape_text
from gateway.protocol.messages import INVALID_PARAMS
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.permissions import NAME_LENGTH, Owners
from gateway.proxy.upstream.session import rpc_error
from gateway.proxy.upstream.upstream import Upstream

Watch = Callable[[Collection[str], Principal, Callable[[str], None]], Awaitable[Callable[[], None]]]
Ask = Callable[[Upstream, str, dict[str, Any], Caller], Awaitable[dict[str, Any]]]


class Resources:
    """The methods about one resource."""

    def __init__(self, upstreams: Mapping[str, Upstream], owners: Owners, watch: Watch, ask: Ask) -> None:
        """`watch` as `Proxy.watch`; `ask` puts a request to a server."""
        self._upstreams = upstreams
        self._owners = owners
        self._watch = watch
        self._ask = ask
        self._subscribed: dict[ClientSession, dict[str, Callable[[], None]]] = {}

    async def read(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """Put the request to the URI's owner, and to no other server."""
        uri = params.get("uri")
        if not isinstance(uri, str):
            raise rpc_error(INVALID_PARAMS, f"{method} needs the resource's URI as a text in params.uri")
        await self._owners.learn_uri(uri, caller)
        owner = self._owners.uri_owner(uri, caller.principal, caller)
        if owner is None:
            known = f"no server has the resource {escape_text(uri, NAME_LENGTH)!r}: list them anew"
            raise rpc_error(INVALID_PARAMS, known, uri=uri)
        return await self._ask(self._upstreams[owner], method, params, caller)

    async def subscribe(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """On the client's own session, if the server holds one for it; else this gateway watches for it."""
        uri, session = params.get("uri"), caller.session
        if isinstance(uri, str):
            await self._owners.learn_uri(uri, caller)
        owner = self._owners.uri_owner(uri, caller.principal, caller) if isinstance(uri, str) else None
        if session is None or owner is None or self._upstreams[owner].selector.has_own(caller):
            return await self.read(method, params, caller)
        watched = self._subscribed.setdefault(session, {})
        if uri not in watched:
            stop = await self._watch(
                [str(uri)],
                caller.principal,
                lambda updated: session.notified("notifications/resources/updated", {"uri": updated}),
            )
            if uri in watched or self._subscribed.get(session) is not watched:
                # Asked for twice at a time, or the client has gone meanwhile.
                stop()
            else:
                watched[str(uri)] = stop
        return {}

    async def unsubscribe(self, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """End what `subscribe` began, wherever that is: on a session that clients share it may be another client's."""
        uri = params.get("uri")
        watched = self._subscribed.get(caller.session, {}) if caller.session is not None else {}
        stop = watched.pop(str(uri), None)
        if stop is not None:
            stop()
            return {}
        owner = self._owners.uri_owner(uri, caller.principal, caller) if isinstance(uri, str) else None
        if owner is None or self._upstreams[owner].selector.has_own(caller):
            return await self.read(method, params, caller)
        return {}

    def forget(self, session: ClientSession) -> None:
        """The client is gone."""
        for stop in self._subscribed.pop(session, {}).values():
            stop()
