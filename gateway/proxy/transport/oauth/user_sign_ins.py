"""Users sign in to servers at which each has a sign-in of their own, by a browser that leaves the gateway and returns.

Turns an owner and a server into the address at which their browser signs in, and the redirect that comes back into
their sealed sign-in. Who the owner is has been proved before; that the same browser comes back is proved here. It
serves no page.
"""

import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import parse_qs

from gateway.config.gateway_config import UpstreamConfig
from gateway.proxy.transport.http.client import open_http_client
from gateway.proxy.transport.oauth.code_flow import NOT_OURS, Client, CodeFlow, NotOurs
from gateway.proxy.transport.oauth.discovery import AuthorizationServer, DocumentFetcher, fetcher_for
from gateway.proxy.transport.oauth.grants import REGISTRATION, Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.sign_in import begin_sign_in, finish_sign_in
from gateway.proxy.transport.oauth.token_endpoint import Refused
from gateway.proxy.transport.transport_interface import NoAnswer
from gateway.shared import StoreBounds, StoreRecord
from gateway.shared.store_interface import packed, unpacked

# A sign-in that has begun is sealed in the store that replicas share, or, without one, in a file in the folder of the
# sign-ins, so that another replica or worker can finish it. Taking it needs the cookie of the browser that began it; of
# two that take it at the same time, one gets it.

LIFE: Final = 900
"""Seconds that a person has to sign in."""
_PURPOSE: Final = "begun"
_KIND: Final = "pending"
_MOST: Final = 8
"""Sign-ins that one owner may have begun on one machine; one more ends the oldest."""
_BOUNDS: Final = StoreBounds(8 * 1024 * 1024, 32 * 1024, LIFE)
"""Those in the shared store: 2 KB each, so about as many for each owner."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in whose browser is at the authorization server."""

    key: GrantKey
    flow: CodeFlow
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The name of the cookie that binds the sign-in to the browser that began it."""
        return _cookie_of(self.flow.state, is_secure=self.flow.redirect_uri.startswith("https:"))

    @property
    def value(self) -> str:
        """That cookie's value: the secret, and whose sign-in it is, by which the shared store finds it."""
        return f"{self.secret}.{_whose(self.key.owner)}"


class PendingSignIns:
    """The sign-ins that have begun at one gateway, its workers and its replicas."""

    def __init__(self, store: GrantStore) -> None:
        self._store = store

    async def keep(self, begun: Begun) -> None:
        """Keep it until its redirect comes. Raises `ConfigError` if it can't be written."""
        owner, state = begun.key.owner, begun.flow.state
        plain = packed([self._now(), astuple(begun.key), begun.secret, astuple(begun.flow)])
        if (shared := self._store.shared) is not None:
            await shared.keep(_KIND, _whose(owner), StoreRecord(state, None, plain), _BOUNDS)
            if await shared.find(_KIND, _whose(owner), state, _BOUNDS):
                return
        self._make_room(owner)
        self._store.seal_file(_PURPOSE, "", self._path(owner, state), plain)

    async def take(self, state: str, cookies: Mapping[str, str]) -> Begun | None:
        """The sign-in, which nobody can take again; None: there is none with this state that this browser began.
        `cookies`: those of the browser. Raises `NoAnswer`: the shared store does not answer; nothing has changed."""
        found = self._take_file(state, cookies)
        if found is None:
            return await self._take_shared(state, cookies)
        if self._store.shared is not None:
            # It may have got there, too, after nobody waited for it any more.
            await self._store.shared.drop(_KIND, _whose(found.key.owner), state)
        return found

    def _take_file(self, state: str, cookies: Mapping[str, str]) -> Begun | None:
        for path in self._store.folder.glob(self._path("*", state).name):
            with suppress(FileNotFoundError):
                plain = self._store.open_file(_PURPOSE, "", path)
                if (found := self._opened(plain, cookies)) is not None:
                    path.unlink()
                    return found
        return None

    async def _take_shared(self, state: str, cookies: Mapping[str, str]) -> Begun | None:
        given = next(filter(None, (cookies.get(_cookie_of(state, is_secure=each)) for each in (True, False))), "")
        whose = given.rpartition(".")[2]
        if (shared := self._store.shared) is None or not whose:
            return None
        found = await shared.find(_KIND, whose, state, _BOUNDS)
        begun = self._opened(found[0].value, cookies) if found else None
        taken = None if begun is None else await shared.drop(_KIND, whose, state)
        if taken is None and not shared.status.up:
            raise NoAnswer("the store that the replicas share does not answer: reload this page in a moment")
        return begun if taken else None

    def _opened(self, plain: bytes | None, cookies: Mapping[str, str]) -> Begun | None:
        """The sign-in, if it is not too old and the browser began it."""
        with suppress(TypeError, ValueError):
            began, key, secret, (server, client, *rest) = cast("list[Any]", unpacked(plain or b""))
            begun = Begun(GrantKey(*key), CodeFlow(_server_of(server), Client(*client), *rest), secret)
            given = cookies.get(begun.cookie, "").encode("utf-8", "replace")
            if self._now() - began <= LIFE and compare_digest(begun.value.encode(), given):
                return begun
        return None

    def _make_room(self, owner: str) -> None:
        mine, left = self._path(owner, "").name, list[tuple[float, Path]]()
        for path in self._store.folder.glob(f"{_PURPOSE}-*"):
            with suppress(FileNotFoundError):
                written = path.stat().st_mtime
                if self._now() - written > LIFE:
                    path.unlink()
                elif path.name.startswith(mine):
                    left.append((written, path))
        for _, path in sorted(left)[: max(0, len(left) - _MOST + 1)]:
            path.unlink(missing_ok=True)

    def _path(self, owner: str, state: str) -> Path:
        """`owner` `*`: anybody; `state` empty: what the names of all that the owner began begin with."""
        whose = owner if owner == "*" else self._store.digest(_PURPOSE, owner)
        return self._store.folder / f"{_PURPOSE}-{whose}.{self._store.digest(_PURPOSE, state) if state else ''}"

    def _now(self) -> float:
        return datetime.now(UTC).timestamp()


def _cookie_of(state: str, *, is_secure: bool) -> str:
    # Over https, only this very host can set a `__Host-` cookie (RFC 6265bis, 4.1.3), so nobody can plant their own in
    # another browser.
    return f"{'__Host-' if is_secure else ''}codec-sign-in-{sha256(state.encode()).hexdigest()[:16]}"


def _whose(owner: str) -> str:
    """An owner's name in cookies."""
    return sha256(f"{_PURPOSE} {owner}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _server_of(values: list[Any]) -> AuthorizationServer:
    made = AuthorizationServer(*values)
    return replace(made, scopes=tuple(made.scopes))


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
