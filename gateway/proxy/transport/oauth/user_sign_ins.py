"""Users sign in to servers at which each has a sign-in of their own, by a browser that leaves the gateway and returns.

Turns an owner and a server into the address at which their browser signs in, and the redirect that comes back into
their sealed sign-in. Who the owner is has been proved before; that the same browser comes back is proved here. It
serves no page.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs

from gateway.config.model import UpstreamConfig
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.oauth.code_flow import NOT_OURS, CodeFlow, NotOurs
from gateway.proxy.transport.oauth.documents import DocumentFetcher, fetcher_for
from gateway.proxy.transport.oauth.grant import Grant
from gateway.proxy.transport.oauth.grant_store import REGISTRATION, GrantKey, GrantStore
from gateway.proxy.transport.oauth.pending import Begun, PendingSignIns
from gateway.proxy.transport.oauth.sign_in import begin_sign_in, finish_sign_in
from gateway.proxy.transport.oauth.tokens import Refused


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a browser needs to sign in."""

    address: str
    """At the authorization server."""
    cookie: str
    """The name of the cookie that the browser must bring back."""
    secret: str = field(repr=False)
    """Its value."""


class UserSignIns:
    """The sign-ins of users at the servers of one gateway."""

    def __init__(self, store: GrantStore | None = None) -> None:
        """`store`: None: the one in the state folder."""
        self._store = store or GrantStore()
        self._pending = PendingSignIns(self._store)

    async def begin(self, config: UpstreamConfig, owner: str) -> Beginning:
        """Begin a sign-in. Raises `NoAnswer`, `LinkLost`, `ConfigError`."""
        key = GrantKey(owner, config.name, config.url or "")
        redirect = "" if config.auth is None else config.auth.redirect_url or ""
        async with open_http_client() as client:
            flow = await begin_sign_in(config, client, redirect, self._known(key))
        self._keep_client(replace(key, owner=REGISTRATION), flow)
        begun = Begun(key, flow)
        await self._pending.keep(begun)
        return Beginning(flow.address(), begun.cookie, begun.value)

    async def finish(
        self, query: str, cookies: Mapping[str, str], configs: Iterable[UpstreamConfig]
    ) -> tuple[str, str]:
        """End a sign-in. Return its server and owner.

        Args:
            query: that of the address at which the browser ended.
            cookies: those of this browser.
            configs: the servers that there are now.

        Raises:
            NotOurs: this browser began no such sign-in; nothing has changed.
            NoAnswer, LinkLost: the authorization server refused, or is another than was asked; or the shared store does
                not answer.
            ConfigError: the sign-in can't be kept.
        """
        begun = await self._pending.take(state_of(query), cookies)
        wanted = None if begun is None else (begun.key.server, begun.key.url)
        config = next((each for each in configs if each.has_user_pages and (each.name, each.url) == wanted), None)
        if begun is None or config is None:
            raise NotOurs(NOT_OURS)
        code = begun.flow.read_redirect(query)
        async with open_http_client() as client:
            await keep_sign_in(self._store, begun.key, begun.flow, fetcher_for(config, client), code)
        return config.name, begun.key.owner

    def _known(self, key: GrantKey) -> Grant | None:
        """What is known from before: the owner's last sign-in, with the client that was registered last."""
        mine, shared = self._store.read(key), self._store.read(replace(key, owner=REGISTRATION))
        if mine is None or shared is None:
            return mine or shared
        # A client that the authorization server did not know any more is noted in the owner's sign-in.
        is_newer = shared.issuer == mine.issuer and shared.client.id != mine.client.id
        return replace(mine, client=shared.client) if is_newer else mine

    def _keep_client(self, key: GrantKey, flow: CodeFlow) -> None:
        if flow.client.redirect_uri:
            server = flow.server
            self._store.write(key, Grant(server.issuer, server.token_endpoint, None, flow.client, flow.resource, None))


async def keep_sign_in(store: GrantStore, key: GrantKey, flow: CodeFlow, fetcher: DocumentFetcher, code: str) -> Grant:
    """Exchange the code of a redirect for tokens, and keep them. Raises `NoAnswer`, `LinkLost`, `ConfigError`."""
    try:
        grant = await finish_sign_in(flow, fetcher, code)
    except Refused as error:
        if error.code == "invalid_client":
            store.forget_client(key)
        raise
    async with store.alone(key):
        await store.replace(key, grant)
    return grant


def state_of(query: str) -> str:
    """The state in the query of a redirect; empty: there is none, or several."""
    with suppress(ValueError):
        states = parse_qs(query, max_num_fields=64).get("state", [])
        return states[0] if len(states) == 1 else ""
    return ""
