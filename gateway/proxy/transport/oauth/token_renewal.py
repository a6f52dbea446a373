"""What gets the tokens for requests to one MCP server: our own credentials, or somebody's sign-in."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from time import monotonic
from types import MappingProxyType
from typing import Final

import anyio
from structlog.typing import FilteringBoundLogger

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import ConfigError
from gateway.escape import escape_text
from gateway.proxy.transport.http.client import Authorizer, HttpClient
from gateway.proxy.transport.http.http_answers import challenge_parameters
from gateway.proxy.transport.oauth.discovery import FETCH_TIME, DocumentFetcher, fetcher_for
from gateway.proxy.transport.oauth.grants import OPERATOR, Grant, GrantKey, GrantStore
from gateway.proxy.transport.oauth.token_endpoint import (
    MARGIN,
    ClientCredentialsGrant,
    NotIssued,
    Refused,
    Tokens,
    read_tokens,
)
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, SignInReplaced

# A sign-in is renewed once for all requests, workers, processes and replicas at the same time, since authorization
# servers take a refresh token that is used twice for a stolen one. It never opens a browser.

_LOOK: Final = 1.0
"""Seconds after which a sign-in or a sign-out on this machine, or at a replica that shares them, has been noticed."""
_AGAIN: Final = 5.0
"""Seconds before tokens are renewed again, after the last ones were refused or could not be renewed."""
_AGAIN_STORE: Final = 0.5
"""Seconds before a shared store that did not answer is asked again."""
_PAUSE: Final = 0.1
"""Seconds between two looks for what another replica is renewing."""
_SCOPE_WANTED: Final = ("invalid_request", "invalid_scope")
_SCOPE_BOUND: Final = 4096
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class SignedIn:
    """The sign-in of one owner at one server, shared by all sessions with it."""

    def __init__(
        self,
        config: UpstreamConfig,
        owner: str,
        fetcher: DocumentFetcher,
        store: GrantStore,
        log: FilteringBoundLogger,
        clock: Callable[[], float] = lambda: datetime.now(UTC).timestamp(),
    ) -> None:
        """Reads nothing before the first request. `owner`: whose sign-in it is; `OPERATOR`: that of everybody. `clock`:
        returns seconds since 1970."""
        self._config = config
        self._key = GrantKey(owner, config.name, config.url or "")
        self._fetcher = fetcher
        self._store = store
        self._log = log
        self._clock = clock
        self._grant: Grant | None = None
        self._due: float | None = None
        """When its tokens are to be renewed, by `clock`; None: not before the server refuses them."""
        self._state: tuple[int, int] | None = None
        self._unkept = False
        """Whether the tokens could not be written; those in the file are spent then."""
        self._looked = -_LOOK
        self._asked = -_LOOK
        """When the replicas were asked for a newer one."""
        self._renewing: asyncio.Task[None] | None = None
        self._renewed = -_AGAIN
        self._failure = ""
        self._refused_token: str | None = None
        """The last token that the server refused: it is of no use, however long it is valid."""

    async def headers(self) -> Mapping[str, str]:
        """See `Authorizer.headers`. Empty while nobody has signed in: the server may need no sign-in."""
        grant = await self.refresh()
        if grant is None or grant.access is None:
            return _NOTHING
        if self._due is not None and self._clock() >= self._due and grant.refresh is not None:
            try:
                await self._renew(grant)
            except NoAnswer:
                if self._grant is not grant or not self._is_usable(grant):
                    raise
            grant = self._grant
        return _NOTHING if grant is None else {"authorization": f"Bearer {grant.access}"}

    async def refresh(self) -> Grant | None:
        """The sign-in, read again if that was a second ago, here or at the replicas. Raises `NoAnswer`."""
        grant = self._seen()
        is_due = self._store.shared is not None and monotonic() - self._asked >= _LOOK
        return await self.look_up() if is_due and (self._config.auth or grant is not None) else grant

    def _seen(self) -> Grant | None:
        """The sign-in of this machine, read again if that was a second ago. Raises `NoAnswer`."""
        return self._grant if monotonic() - self._looked < _LOOK else self._look()

    def current(self) -> str | None:
        """Which sign-in there is now; None: none, or one that has ended. Raises `NoAnswer`: it can't be read."""
        grant = self._seen()
        return None if grant is None or grant.access is None else grant.sign_in

    async def refused(self, status: int, www_authenticate: str, sent: Mapping[str, str]) -> bool:
        """See `Authorizer.refused`."""
        challenge = challenge_parameters(www_authenticate)
        grant = await self.look_up()
        if status == 403:
            return await self._refused_scope(grant, challenge)
        if grant is None:
            if self._config.auth is None and "resource_metadata" not in challenge:
                # It may want another kind of credentials, or have forgotten our session.
                return False
            raise NoAnswer(f"nobody has signed in to it: {self._way_out}")
        if grant.access is None:
            raise NoAnswer(f"its sign-in has ended: {self._way_out}")
        if sent.get("authorization") != f"Bearer {grant.access}":
            # The tokens were renewed while the request was under way.
            return True
        if grant.refresh is None:
            raise NoAnswer(f"it refuses the token of its sign-in, which can't be renewed: {self._way_out}")
        # Short-lived tokens can end on their way.
        is_due = self._due is not None and self._clock() >= self._due
        if not is_due and monotonic() - self._renewed < _AGAIN and not self._failure:
            raise NoAnswer(f"it refuses even a token that was just renewed: {self._way_out}")
        self._refused_token = grant.access
        await self._renew(grant)
        if self._grant is grant:
            # Another replica was about to renew it when nobody knew yet that the token is refused.
            await self._renew(grant)
        return True

    async def look_up(self, *, tries: int = 1) -> Grant | None:
        """The sign-in, read again if it has changed here or at a replica. Raises `NoAnswer`: it can't be read.

        `tries`: how often a shared store that does not answer is asked.
        """
        grant = self._look()
        if self._store.shared is not None:
            self._asked = monotonic()
            try:
                mine = grant if self._state is None else self._stored()
                newest = await self._asked_store(mine, tries)
                if newest is not None and newest is not mine:
                    async with self._store.alone(self._key):
                        self._take(newest)
            except (ConfigError, OSError) as error:
                raise NoAnswer(f"its sign-in can't be read: {error}") from None
        return self._grant

    async def _asked_store(self, mine: Grant | None, tries: int) -> Grant | None:
        for left in reversed(range(tries)):
            with suppress(NoAnswer):
                return await self._store.newest(self._key, mine)
            if left:
                await anyio.sleep(_AGAIN_STORE)
        return mine

    def _take(self, newest: Grant) -> None:
        """Keep what another replica has written, unless another process of this machine has kept a newer one."""
        stored = self._store.read(self._key)
        if stored is None or stored.version < newest.version:
            self._write(newest)
            self._failure, self._renewed = "", -_AGAIN
        else:
            self._keep(stored, self._store.state(self._key))

    @property
    def _way_out(self) -> str:
        if self._key.owner != OPERATOR and self._config.auth is not None:
            return f"open {self._config.auth.user_page(self._config.name)}"
        way = f"run `codec-gateway login {self._config.name}`"
        if self._config.exchange is not None:
            return f"callers with access tokens need not; for the others {way}, or set `oauth` of this server"
        return way

    def _look(self) -> Grant | None:
        """The sign-in, read again if it has changed."""
        self._looked = monotonic()
        try:
            state = self._store.state(self._key)
            if state != self._state:
                self._keep(None if state is None else self._store.read(self._key), state)
                self._failure, self._renewed, self._unkept = "", -_AGAIN, False
            elif self._unkept and self._grant is not None:
                self._write(self._grant)
        except (ConfigError, OSError) as error:
            raise NoAnswer(f"its sign-in can't be read: {error}") from None
        return self._grant

    def _usable(self, grant: Grant | None) -> Grant | None:
        """The sign-in, if it is the one that is meant."""
        issuer = None if self._config.auth is None else self._config.auth.issuer
        if grant is not None and issuer is not None and issuer.rstrip("/") != grant.issuer.rstrip("/"):
            # The tokens are another authorization server's than the configured one.
            return None
        return grant

    async def _refused_scope(self, grant: Grant | None, challenge: Mapping[str, str]) -> bool:
        """Keep which scopes are missing, for the next sign-in (MCP, "Step-Up Authorization Flow")."""
        if grant is None or challenge.get("error") != "insufficient_scope":
            return False
        from gateway.proxy.transport.oauth.code_flow import joined_scope, readable_scope

        missing = joined_scope(grant.missing, readable_scope(challenge.get("scope", "")))
        if missing is not None and missing != grant.missing and len(missing) <= _SCOPE_BOUND:
            # Where it can't be kept, the next sign-in asks for less than it could; why this call fails stays the same.
            with suppress(ConfigError, OSError), anyio.move_on_after(FETCH_TIME):
                async with self._store.alone(self._key):
                    if (stored := self._usable(self._stored())) is not None:
                        self._write(replace(stored, missing=missing).after(stored))
        raise NoAnswer(f"the sign-in lacks scopes that it asks for: {self._way_out}, which asks for them, too")

    async def _renew(self, grant: Grant) -> None:
        """Renew the tokens once, whoever asks for it; a caller that leaves does not stop it."""
        if self._failure and monotonic() - self._renewed < _AGAIN:
            raise NoAnswer(self._failure)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._renew_once(grant))
            # It has noted its failure, which nobody may be there to hear.
            self._renewing.add_done_callback(lambda task: None if task.cancelled() else task.exception())
        await asyncio.shield(self._renewing)

    async def _renew_once(self, grant: Grant) -> None:
        is_over = True
        try:
            with anyio.fail_after(2 * FETCH_TIME):
                async with self._store.alone(self._key):
                    is_over = await self._renew_alone(grant)
            self._failure = ""
            if not is_over:
                self._due = self._clock() + _LOOK
        except TimeoutError:
            self._fail(f"its authorization server did not answer within {FETCH_TIME:g} s", grant)
        except (ConfigError, NoAnswer, LinkLost, OSError) as error:
            self._fail(str(error), grant, is_refusal=isinstance(error, NotIssued) and error.code != "")
        finally:
            if is_over:
                self._renewed = monotonic()

    async def _renew_alone(self, grant: Grant) -> bool:
        """Renew the tokens, or wait until another replica has. Returns False if they are still of use meanwhile."""
        while True:
            async with self._store.lease(self._key, self._stored) as is_leased:
                stored = self._stored()
                try:
                    newest = await self._store.newest(self._key, stored)
                except NoAnswer:
                    if stored is None or not stored.reusable:
                        raise
                    newest = stored
                if newest is not None and newest is not stored:
                    self._write(newest)
                if is_leased or newest is not stored:
                    await self._exchange(grant)
                    return True
            if self._is_usable(grant):
                return False
            await anyio.sleep(_PAUSE)

    def _is_usable(self, grant: Grant) -> bool:
        is_valid = grant.expires is None or self._clock() < grant.expires
        return is_valid and grant.access not in (None, self._refused_token)

    def _fail(self, why: str, grant: Grant, *, is_refusal: bool = False) -> None:
        # Not all say `invalid_grant` of a refresh token that has ended.
        lasting = f"; if that lasts, {self._way_out}" if is_refusal else ""
        self._failure = f"its sign-in can't be renewed: {why}{lasting}"
        if self._grant is not None and self._grant.access is None:
            self._failure = f"its sign-in has ended ({why}): {self._way_out}"
            self._log.warning(
                "sign-in to upstream has ended", issuer=escape_text(grant.issuer, 200), way_out=self._way_out
            )
        raise NoAnswer(self._failure) from None

    async def _exchange(self, grant: Grant) -> None:
        """Ask for new tokens, unless another process has just got some."""
        stored = self._usable(self._stored())
        if stored is None or stored.access != grant.access or stored.refresh is None:
            self._keep(stored, self._store.state(self._key))
            return
        # Their life begins before the answer comes.
        asked = self._clock()
        try:
            with anyio.fail_after(FETCH_TIME):
                tokens = await self._refreshed(stored, stored.refresh)
        except Refused as error:
            self._write(stored.ended(client_too=error.code == "invalid_client"))
            raise
        self._write(stored.renewed(tokens, asked))
        self._log.info("sign-in to upstream renewed", issuer=escape_text(stored.issuer, 200))

    async def _refreshed(self, stored: Grant, refresh: str) -> Tokens:
        from gateway.proxy.transport.oauth.code_flow import refresh_form

        headers, proof = stored.client.authentication()

        async def ask(scope: str | None) -> Tokens:
            form = {**refresh_form(refresh, stored.resource, scope), **proof}
            return read_tokens(*await self._fetcher.post_form(stored.token_endpoint, form, headers))

        try:
            return await ask(None)
        except NotIssued as error:
            # Entra refuses a request without a scope, although it may be left out (RFC 6749, 6).
            if error.code not in _SCOPE_WANTED or stored.scope is None:
                raise
            return await ask(stored.scope)

    def _stored(self) -> Grant | None:
        return self._grant if self._unkept else self._store.read(self._key)

    def _write(self, grant: Grant) -> None:
        try:
            self._store.write(self._key, grant)
        except ConfigError as error:
            # The tokens before these are spent: without these, somebody would have to sign in again.
            if not self._unkept:
                self._log.warning(
                    "sign-in to upstream can't be kept: it lasts as long as this process", cause=str(error)
                )
            self._unkept = True
            self._keep(grant, self._state)
        else:
            self._unkept = False
            self._keep(grant, self._store.state(self._key))

    def _keep(self, grant: Grant | None, state: tuple[int, int] | None) -> None:
        self._grant, self._state, self._due = self._usable(grant), state, None
        if grant is not None and grant.expires is not None:
            # A token may live no longer than the margin: half of what is left, or each call would renew it.
            self._due = grant.expires - min(MARGIN, max(0.0, grant.expires - self._clock()) / 2)


class OneSignIn:
    """One of the sign-ins that an owner makes, for sessions that only this one may use.

    It shares what is known of them with whoever chose it: were there two views, one could still choose a sign-in that
    the other knows to be replaced.
    """

    def __init__(self, signed_in: SignedIn, which: str) -> None:
        """`which`: its `current`."""
        self._signed_in = signed_in
        self._which = which

    async def headers(self) -> Mapping[str, str]:
        """See `Authorizer.headers`. Raises `SignInReplaced` instead of returning another sign-in's."""
        headers = await self._signed_in.headers()
        if headers and self._signed_in.current() != self._which:
            raise SignInReplaced
        return headers

    async def refused(self, status: int, www_authenticate: str, sent: Mapping[str, str]) -> bool:
        """See `Authorizer.refused`. Raises `SignInReplaced` if there is another sign-in now."""
        await self._signed_in.look_up()
        if self._signed_in.current() in (None, self._which):
            return await self._signed_in.refused(status, www_authenticate, sent)
        if status == 401:
            raise SignInReplaced
        return False


def authorizer_for(
    config: UpstreamConfig, client: HttpClient, store: GrantStore, log: FilteringBoundLogger
) -> Authorizer | None:
    """Return what gets the upstream's tokens, the same for all connections; None: its headers have what it needs."""
    if config.url is None or (config.oauth is None and "authorization" in (name.lower() for name in config.headers)):
        return None
    key = (config.name, config.url, config.oauth, config.auth)
    if key not in client.authorizers:
        if config.oauth is not None:
            client.authorizers[key] = ClientCredentialsGrant(config.url, config.oauth, client, log)
        else:
            client.authorizers[key] = SignedIn(config, OPERATOR, fetcher_for(config, client), store, log)
    return client.authorizers[key]
