"""The upstreams of one server at which each principal signs in for itself: one upstream for each of them.

Turns a principal into its own upstream, with its own sessions, lists and failures, whose requests carry its own token.
It is opened when it is first needed, and ends after some time without use, with its sign-in, or when the principal has
signed in again: the next sign-in may be another person's. The server's own upstream serves nobody but those who use the
operator's sign-in; what that lists is what principals see before they have signed in. It asks nobody to sign in.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Final

import anyio

from gateway.config.model import UpstreamConfig
from gateway.errors import SignInNeeded, UpstreamUnavailable
from gateway.proxy.caller import Principal
from gateway.proxy.transport.interface import NoAnswer
from gateway.proxy.transport.oauth.signed_in import SignedIn
from gateway.proxy.upstream.upstream import Upstream

_SWEEP: Final = 15.0
_IDLE: Final = 600.0
"""Seconds without use after which a principal's upstream ends."""


@dataclass(slots=True)
class _User:
    sign_in: SignedIn
    which: str
    """The sign-in with which the upstream was opened."""
    upstream: Upstream
    _used: float = 0.0

    def note_use(self) -> None:
        """Note that somebody needs it now."""
        self._used = monotonic()

    @property
    def seconds_unused(self) -> float:
        """How long nobody has needed it."""
        return monotonic() - self._used

    @property
    def is_idle(self) -> bool:
        """Whether nobody uses it, and no client has a session of its own there."""
        return not self.upstream.used and self.upstream.sessions() < 2


class PerUser:
    """The upstreams of the principals that have signed in at one server."""

    def __init__(
        self,
        config: UpstreamConfig,
        sign_in: Callable[[str], SignedIn],
        make: Callable[[str, str], Upstream],
        end: Callable[[Upstream], None],
        changed: Callable[[str], None],
    ) -> None:
        """Start with none.

        Args:
            sign_in: returns the sign-in of an owner (`Principal.owner`), whether or not there is one.
            make: starts an upstream for one sign-in (`SignedIn.current`) of an owner; it sends no other tokens.
            end: ends one, once nobody uses it any more.
            changed: told which owner's lists differ now.
        """
        self._name = config.name
        self._page = "" if config.auth is None else config.auth.user_page(config.name)
        self._most = config.most_client_sessions
        self._sign_in = sign_in
        self._make = make
        self._end = end
        self._changed = changed
        self._users: dict[str, _User] = {}
        self._is_stopping = False

    def of(self, principal: Principal) -> Upstream | None:
        """The principal's own upstream; None: it has not signed in, or too many are in use (see `why_none`)."""
        return self.open(principal.owner) if principal.owner else None

    def open(self, owner: str) -> Upstream | None:
        """The same by owner."""
        user = self._users.get(owner)
        sign_in = self._sign_in(owner) if user is None else user.sign_in
        which = _current(sign_in)
        if user is not None and which != user.which:
            self._drop(owner, user)
            self._changed(owner)
            user = None
        if user is None:
            if which is None or self._is_stopping or not self._has_room():
                return None
            user = _User(sign_in, which, self._make(owner, which))
        else:
            del self._users[owner]
        # Those that were used last are at the end.
        self._users[owner] = user
        user.note_use()
        return user.upstream

    def why_none(self, principal: Principal) -> UpstreamUnavailable:
        """The error for a principal that has no upstream."""
        if self._is_stopping:
            return self._unavailable("the gateway is stopping")
        if principal.owner and _current(self._sign_in(principal.owner)) is not None:
            return self._unavailable(
                f"{self._most} callers use it with sign-ins of their own (client_sessions); call again later"
            )
        return SignInNeeded(self._name, self._page)

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
            for owner, user in list(self._users.items()):
                if _current(user.sign_in) != user.which:
                    self._drop(owner, user)
                    self._changed(owner)
                elif user.is_idle and user.seconds_unused > _IDLE:
                    self._drop(owner, user)

    def _has_room(self) -> bool:
        """Whether one more may be open; for that, the one ends that has been idle for longest."""
        if len(self._users) >= self._most:
            idle = next(((owner, user) for owner, user in self._users.items() if user.is_idle), None)
            if idle is None:
                return False
            self._drop(*idle)
        return True

    def _drop(self, owner: str, user: _User) -> None:
        del self._users[owner]
        self._end(user.upstream)


def _current(sign_in: SignedIn) -> str | None:
    with suppress(NoAnswer):
        return sign_in.current()
    return None
