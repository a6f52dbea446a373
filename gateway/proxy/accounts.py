"""Whose tokens requests carry at a server where each principal is itself: those of its own sign-in, or exchanged ones.

Turns a principal into its account there, and an account into what authorizes requests. `per_user.py` opens one upstream
for each account.
"""

from contextlib import suppress
from typing import Final, Protocol

from gateway.config.model import UpstreamConfig
from gateway.errors import SignInNeeded, UpstreamUnavailable
from gateway.proxy.caller import Principal
from gateway.proxy.connector import Connector
from gateway.proxy.transport.http.authorizer import Authorizer
from gateway.proxy.transport.interface import NoAnswer
from gateway.proxy.transport.oauth.exchange import TokenExchange

_TRIES: Final = 4
"""How often a store that is late is asked, half a second apart, before somebody who may have signed in is asked to."""


class Account(Protocol):
    """What one principal has at one server."""

    def current(self) -> str | None:
        """Which tokens it stands for: differs when they may be another person's. None: there are none (any more).

        Raises:
            NoAnswer: that can't be read.
        """
        ...

    async def refresh(self) -> object:
        """Find out, once a second, whether a replica knows others. Raises `NoAnswer`: they can't be read."""
        ...


class Accounts(Protocol):
    """The accounts at one server."""

    def key(self, principal: Principal) -> str:
        """By what the principal's account is told from others; empty: it can't have one."""
        ...

    def account(self, principal: Principal, known: Account | None) -> Account:
        """The principal's account. `known`: the one that is in use for its key."""
        ...

    def authorizer(self, account: Account, principal: Principal, which: str) -> Authorizer:
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

    def account(self, principal: Principal, known: Account | None) -> Account:
        """See `Accounts`."""
        return known or self._connector.sign_in(self._config, principal.owner)

    def authorizer(self, account: Account, principal: Principal, which: str) -> Authorizer:
        """See `Accounts`."""
        del account
        return self._connector.sign_in(self._config, principal.owner, which)

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

    def account(self, principal: Principal, known: Account | None) -> Account:
        """See `Accounts`. Takes note of the principal's token."""
        account = known if isinstance(known, TokenExchange) else self._connector.exchange(self._config)
        if principal.token is not None:
            account.offer(principal.token)
        return account

    def authorizer(self, account: Account, principal: Principal, which: str) -> Authorizer:
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
