"""Servers at which each principal is itself: one upstream for each of them, and the tokens that its requests carry."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol, cast

import anyio

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import GatewayError, RpcError, SignInNeeded, UpstreamUnavailable, rpc_error
from gateway.proxy.approvals import METHOD
from gateway.proxy.bridge import PARKED
from gateway.proxy.caller import Caller, Principal
from gateway.proxy.connector import Connector
from gateway.proxy.results import CallOutcome, ending_of, failure
from gateway.proxy.transport.http.client import Authorizer
from gateway.proxy.transport.oauth.token_endpoint import TokenExchange
from gateway.proxy.transport.oauth.token_renewal import OneSignIn, SignedIn
from gateway.proxy.transport.transport_interface import NoAnswer
from gateway.proxy.upstream.upstream import OwnUpstreams, Upstream

_TRIES: Final = 4
"""How often a store that is late is asked, half a second apart, before somebody who may have signed in is asked to."""


class UpstreamAccount(Protocol):
    """What one principal has at one server."""

    def current(self) -> str | None:
        """Which tokens it stands for: differs when they may be another person's. None: there are none (any more).
        Raises `NoAnswer`: that can't be read."""
        ...

    async def refresh(self) -> object:
        """Find out, once a second, whether a replica knows others. Raises `NoAnswer`: they can't be read."""
        ...


class Accounts(Protocol):
    """The accounts at one server."""

    def key(self, principal: Principal) -> str:
        """By what the principal's account is told from others; empty: it can't have one."""
        ...

    def account(self, principal: Principal, known: UpstreamAccount | None) -> UpstreamAccount:
        """The principal's account. `known`: the one that is in use for its key."""
        ...

    def authorizer(self, account: UpstreamAccount, principal: Principal, which: str) -> Authorizer:
        """What authorizes the requests of the account's upstream. `which`: its `current`; it sends no other tokens."""
        ...

    async def look_up(self, principal: Principal) -> None:
        """Find out whether replicas know tokens of the principal's account that are not known here."""
        ...

    def why_none(self, principal: Principal) -> UpstreamUnavailable:
        """The error for a principal whose account has no tokens."""
        ...


class SignInAccounts:
    """Each principal signs in for itself (`auth.per_user`)."""

    def __init__(self, config: UpstreamConfig, connector: Connector) -> None:
        self._config = config
        self._connector = connector
        self._page = "" if config.auth is None else config.auth.user_page(config.name)

    def key(self, principal: Principal) -> str:
        """See `Accounts`."""
        return principal.owner

    def account(self, principal: Principal, known: UpstreamAccount | None) -> UpstreamAccount:
        """See `Accounts`."""
        return known or self._connector.sign_in(self._config, principal.owner)

    def authorizer(self, account: UpstreamAccount, principal: Principal, which: str) -> Authorizer:
        """See `Accounts`."""
        del principal
        if not isinstance(account, SignedIn):
            raise TypeError("this account has no sign-in")
        return OneSignIn(account, which)

    async def look_up(self, principal: Principal) -> None:
        """See `Accounts`."""
        if principal.owner and self._connector.grants.shared is not None:
            with suppress(NoAnswer):
                await self._connector.sign_in(self._config, principal.owner).look_up(tries=_TRIES)

    def why_none(self, principal: Principal) -> UpstreamUnavailable:
        """See `Accounts`."""
        del principal
        return SignInNeeded(self._config.name, self._page)


class ExchangeAccounts:
    """Each principal's access token is exchanged (`exchange`). What one of its tokens may do, another need not, so only
    those that renew each other share an account."""

    def __init__(self, config: UpstreamConfig, connector: Connector) -> None:
        self._config = config
        self._connector = connector

    def key(self, principal: Principal) -> str:
        """See `Accounts`."""
        token = principal.token
        return "" if not principal.owner or token is None or not token.text else f"{token.rights} {principal.owner}"

    def account(self, principal: Principal, known: UpstreamAccount | None) -> UpstreamAccount:
        """See `Accounts`. Takes note of the principal's token."""
        account = known if isinstance(known, TokenExchange) else self._connector.exchange(self._config)
        if principal.token is not None:
            account.offer(principal.token)
        return account

    def authorizer(self, account: UpstreamAccount, principal: Principal, which: str) -> Authorizer:
        """See `Accounts`."""
        del principal, which
        if not isinstance(account, TokenExchange):
            raise TypeError("this account exchanges no tokens")
        return account

    async def look_up(self, principal: Principal) -> None:
        """See `Accounts`. Callers bring theirs to each replica."""

    def why_none(self, principal: Principal) -> UpstreamUnavailable:
        """See `Accounts`."""
        name = self._config.name
        why = (
            "it takes only callers with an access token of this gateway's OAuth issuer, in exchange for which it gets "
            "one of its own; yours is another kind of credential: sign in with OAuth instead"
            if principal.token is None
            else "your access token has expired: call again with a fresh one"
        )
        return UpstreamUnavailable(f"server {name!r} is not available: {why}", server=name)


# A principal's own upstream is opened when it is first needed. It ends after some time without use, with its tokens, or
# when the principal has signed in again: the next sign-in may be another person's. The server's own upstream serves
# only those who use the operator's credentials; what that lists is what principals see before they have an upstream of
# their own.

_SWEEP: Final = 15.0
_IDLE: Final = 600.0
"""Seconds without use after which a principal's upstream ends."""


@dataclass(slots=True)
class _User:
    account: UpstreamAccount
    which: str
    """What the account stood for when the upstream was opened."""
    owner: str
    upstream: Upstream
    _used: float = 0.0

    def note_use(self) -> None:
        self._used = monotonic()

    @property
    def seconds_unused(self) -> float:
        return monotonic() - self._used

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it, and no client has a session of its own there."""
        return not self.upstream.used and self.upstream.sessions() < 2


class PerUser:
    """The upstreams of the principals that are themselves at one server."""

    def __init__(
        self,
        config: UpstreamConfig,
        accounts: Accounts,
        share: int,
        make: Callable[[str, Authorizer], Upstream],
        end: Callable[[Upstream], None],
        changed: Callable[[str], None],
    ) -> None:
        """Start with none.

        Args:
            accounts: tells principals apart, and where their tokens come from.
            share: how many one owner may have: tokens that allow different things have an upstream each.
            make: starts an upstream of an owner (`Principal.owner`); it sends no other tokens than these.
            end: ends one, once nobody uses it any more.
            changed: told which owner's lists differ now.
        """
        self._name = config.name
        self._most = config.most_client_sessions
        self._accounts = accounts
        self._share = share
        self._make = make
        self._end = end
        self._changed = changed
        self._users: dict[str, _User] = {}
        self._is_stopping = False

    def of(self, principal: Principal) -> Upstream | None:
        """The principal's own upstream; None: it has no tokens, or too many are in use (see `why_none`)."""
        if not (key := self._accounts.key(principal)):
            return None
        user = self._users.get(key)
        account = self._accounts.account(principal, None if user is None else user.account)
        which = _current(account)
        if user is not None and which != user.which:
            self._drop(key, user)
            self._changed(user.owner)
            user = None
        if user is None:
            if which is None or self._is_stopping or not self._has_room(principal.owner):
                return None
            made = self._make(principal.owner, self._accounts.authorizer(account, principal, which))
            user = _User(account, which, principal.owner, made)
        else:
            del self._users[key]
        # Those that were used last are at the end.
        self._users[key] = user
        user.note_use()
        return user.upstream

    async def look_up(self, principal: Principal) -> Upstream | None:
        """The same, after asking whether the principal has signed in at another replica, perhaps as somebody else."""
        if (user := self._users.get(self._accounts.key(principal))) is not None:
            with suppress(NoAnswer):
                await user.account.refresh()
        own = self.of(principal)
        if own is None and not self._is_stopping:
            await self._accounts.look_up(principal)
            own = self.of(principal)
        return own

    def open(self, owner: str) -> Upstream | None:
        """The same for an owner who has signed in."""
        return self.of(Principal("", owner=owner))

    def why_none(self, principal: Principal) -> UpstreamUnavailable:
        """The error for a principal that has no upstream."""
        if self._is_stopping:
            return self._unavailable("the gateway is stopping")
        if self._accounts.key(principal) and _current(self._accounts.account(principal, None)) is not None:
            return self._unavailable(
                f"all {self._most} places for callers are in use there (client_sessions), or all {self._share} that one"
                " caller may have (limits.principal_share); call again later"
            )
        return self._accounts.why_none(principal)

    def _unavailable(self, cause: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"server {self._name!r} is not available: {cause}", server=self._name)

    def stop(self) -> None:
        """Begin to end all of them, and open none again."""
        self._is_stopping = True
        for upstream in self.all():
            upstream.stop()

    def all(self) -> Sequence[Upstream]:
        """Those that are open."""
        return [user.upstream for user in self._users.values()]

    async def sweep(self) -> None:
        """Keep ending those that nobody needs any more, until cancelled."""
        while True:
            await anyio.sleep(_SWEEP)
            for key, user in list(self._users.items()):
                if _current(user.account) != user.which:
                    self._drop(key, user)
                    self._changed(user.owner)
                elif user.is_idle and user.seconds_unused > _IDLE:
                    self._drop(key, user)

    def _has_room(self, owner: str) -> bool:
        """Whether one more of this owner may be open; for that, the one ends that has been idle for longest."""
        users = {key: user for key, user in self._users.items() if user.owner == owner}
        if len(users) < self._share:
            users = self._users
        if users is not self._users or len(users) >= self._most:
            idle = next(((key, user) for key, user in users.items() if user.is_idle), None)
            if idle is None:
                return False
            self._drop(*idle)
        return True

    def _drop(self, key: str, user: _User) -> None:
        del self._users[key]
        self._end(user.upstream)


def _current(account: UpstreamAccount) -> str | None:
    with suppress(NoAnswer):
        return account.current()
    return None


# The page proves who opens it: whoever else gets its address can sign in for themselves only (MCP, "URL Mode
# Elicitation").

_STATE: Final = f"{PARKED}sign-in"
"""The `requestState` of a modern client's next round. It stands for nothing: whether they signed in is looked up."""
_KEY: Final = "sign-in"
_URL_NEEDED: Final = -32042
"""The code of an error that names pages to be opened first (MCP of 2025-11-25)."""
_WAIT: Final = 600.0
"""Seconds that a handshake-era call waits for its user to sign in."""
_ROUND: Final = 45.0
"""Seconds that a modern client's next round waits for that; then it is asked again."""
_LOOK: Final = 0.5
"""Seconds between two looks: another worker or replica may have served the page."""


async def find_own(upstream: Upstream, tool: str, params: Mapping[str, Any], caller: Caller) -> Upstream | CallOutcome:
    """The caller's own upstream, which is up, of a server at which each principal signs in, for a call of a tool there;
    or why there is none, and what its user has to do. Raises `RpcError`."""
    server = upstream.config.name
    try:
        found = await _find_own(upstream, params, caller)
        if isinstance(found, dict):
            return CallOutcome(found, ending_of(found), server, tool)
        found = await _brought_up(upstream, found, caller)
    except UpstreamUnavailable as error:
        return CallOutcome(failure(error.message, modern=caller.modern), "unavailable", server, tool)
    return found


async def _brought_up(upstream: Upstream, own: Upstream, caller: Caller) -> Upstream:
    """The caller's own upstream, once it is up; the next one, if its user signs in again meanwhile."""
    try:
        await own.supervisor.want()
    except UpstreamUnavailable:
        newer = cast("OwnUpstreams", upstream.per_user).of(caller.principal)
        if newer is None or newer is own:
            raise
        await newer.supervisor.want()
        return newer
    return own


async def _find_own(upstream: Upstream, params: Mapping[str, Any], caller: Caller) -> Upstream | dict[str, Any]:
    """The caller's own upstream of a server, or the result that asks a modern client's user to sign in first.

    Raises:
        UpstreamUnavailable: it has none. `SignInNeeded`: its user can't be asked, or did not sign in.
        RpcError: a handshake-era client refuses to ask, though it opens pages.
    """
    users = cast("OwnUpstreams", upstream.per_user)
    if (own := await users.look_up(caller.principal)) is not None:
        return own
    error = users.why_none(caller.principal)
    if not isinstance(error, SignInNeeded) or not _shows_pages(caller.capabilities):
        raise error
    if not caller.modern:
        return await _ask(users, error, caller)
    if params.get("requestState") == _STATE:
        if not _accepts(params):
            raise error
        if (own := await _signed_in(users, caller, _ROUND)) is not None:
            return own
    requests = {_KEY: {"method": METHOD, "params": _question(error)}}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": _STATE}


def answered(params: dict[str, Any]) -> dict[str, Any]:
    """The params of a request without the answer to our question, if they hold one."""
    if params.get("requestState") != _STATE:
        return params
    return {key: value for key, value in params.items() if key not in ("requestState", "inputResponses")}


def refusal(upstream: Upstream, caller: Caller) -> GatewayError:
    """The error for a request, other than a call of a tool, of a caller that has no upstream of its own."""
    error = cast("OwnUpstreams", upstream.per_user).why_none(caller.principal)
    if not isinstance(error, SignInNeeded) or caller.modern or not _shows_pages(caller.capabilities):
        return error
    asked = {**_question(error), "elicitationId": secrets.token_urlsafe(16)}
    return rpc_error(_URL_NEEDED, error.message, elicitations=[asked])


def sign_in_advice(upstream: Upstream, principal: Principal) -> str | None:
    """What a client is told at its start, in place of the server's instructions; None: its user need not sign in."""
    if upstream.per_user is None or upstream.serves(principal):
        return None
    error = upstream.per_user.why_none(principal)
    return error.message if isinstance(error, SignInNeeded) else None


async def _ask(users: OwnUpstreams, error: SignInNeeded, caller: Caller) -> Upstream:
    name = secrets.token_urlsafe(16)
    asked = {**_question(error), "elicitationId": name}
    try:
        answer = await caller.asked(METHOD, asked)
    except RpcError:
        # Some clients open pages only for this error (LibreChat, GitHub's pull request 14141).
        raise rpc_error(_URL_NEEDED, error.message, elicitations=[asked]) from None
    own = await _signed_in(users, caller, _WAIT) if answer.get("action") == "accept" else None
    if own is None:
        raise error
    caller.notified("notifications/elicitation/complete", {"elicitationId": name})
    return own


async def _signed_in(users: OwnUpstreams, caller: Caller, seconds: float) -> Upstream | None:
    """Wait until the caller has an upstream of its own; None: the time is over."""
    own = await users.look_up(caller.principal)
    with anyio.move_on_after(seconds):
        while own is None:
            await anyio.sleep(_LOOK)
            own = await users.look_up(caller.principal)
    return own


def _question(error: SignInNeeded) -> dict[str, Any]:
    message = f"The server {error.server!r} needs you to sign in to it, with your own account there."
    return {"mode": "url", "url": error.page, "message": message}


def _accepts(params: Mapping[str, Any]) -> bool:
    responses: object = params.get("inputResponses")
    answer = cast("dict[str, Any]", responses).get(_KEY) if isinstance(responses, dict) else None
    return isinstance(answer, dict) and cast("dict[str, Any]", answer).get("action") == "accept"


def _shows_pages(capabilities: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities opens pages for its user."""
    modes: object = capabilities.get("elicitation")
    return isinstance(modes, Mapping) and "url" in modes
