"""Who is signed in to the console: turns one-time keys and the operator's token into sessions that expire.

A session is a random value in a cookie, of which only the SHA-256 is kept here. Sessions, used keys and failed tries
are bounded. Keys and the token, which can't be guessed, are checked before the failed tries of an address are: nobody
can lock the operator out by guessing. It knows no page.
"""

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from codec_console.keys import LIFETIME, is_fresh, make_key, time_of
from gateway.serve.auth.rate_limiter import FailedTries

SESSION_SECONDS: Final = 12 * 3600.0
MOST_SESSIONS: Final = 16
"""Maximum number of sessions. One more ends the oldest."""
USED: Final = (
    "this URL has been used, is older than ten minutes, or was made before the gateway was started: "
    "`codec-gateway console` prints a new one"
)
_MOST_USED: Final = 256
"""Maximum number of used keys that are remembered; more are refused. Only holders of a secret can make so many."""


def wall_clock() -> float:
    """Seconds since the epoch. Not monotonic: other processes make keys, and sessions expire while a machine sleeps."""
    return datetime.now(UTC).timestamp()


@dataclass(frozen=True, slots=True)
class Session:
    """Somebody who signed in."""

    csrf: str
    """Token that every form of the session must send back."""
    ends: float
    texts: bool | None = None
    """Whether text of conversations is shown to this session; None: as the settings say."""


class SignInRefused(Exception):
    """The key or token is not accepted. `wait`: seconds until this address may try again; 0: at once."""

    def __init__(self, words: str, wait: float = 0.0) -> None:
        super().__init__(words)
        self.words = words
        self.wait = wait


class SignIn:
    """The sessions of one process."""

    def __init__(
        self,
        token: Callable[[], str],
        clock: Callable[[], float] = wall_clock,
        tries: FailedTries | None = None,
    ) -> None:
        """`token` returns the operator's current secret, or raises where it can't be read; so does `enter` then."""
        self._token = token
        self._clock = clock
        self._tries = FailedTries() if tries is None else tries
        self._own = secrets.token_urlsafe(32)
        self._started = clock()
        self._used: OrderedDict[str, float] = OrderedDict()
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()
        self._emptied: Callable[[], None] = lambda: None

    def when_nobody_is_in(self, do: Callable[[], None]) -> None:
        """Call `do` whenever the last session has ended. An expired session is noticed at the next page or answer."""
        self._emptied = do

    def key(self) -> str:
        """Make a one-time key, signed with a secret of this process."""
        return make_key(self._own, self._clock())

    def enter(self, given: str, address: str) -> str:
        """Begin a session for a key or the operator's token; return its cookie. `address`: the browser's address.

        Raises:
            SignInRefused: it is neither, or a key that was used or has expired, or the address failed too often.
            ConfigError: the operator's token can't be read.
        """
        made = time_of(given, self._own)
        if made is None:
            token = self._token()
            if hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
                return self._begin()
            made = time_of(given, token)
        if made is None:
            if (refused := self._tries.refused(address)) is not None:
                raise SignInRefused("too many failed sign-ins came from your address: try again later", refused.wait)
            self._tries.failed(address)
            raise SignInRefused(
                "this is neither a one-time key nor the operator's token: `codec-gateway console` prints a URL with a "
                "new key"
            )
        self._use(given, made)
        return self._begin()

    def is_used(self, key: str) -> bool:
        """Whether somebody has signed in with this key."""
        return key in self._used

    def session(self, cookie: str) -> Session | None:
        """The session of a cookie; None where there is none, or where it has ended."""
        self._end_old()
        return self._sessions.get(_digest(cookie))

    def is_anybody_in(self) -> bool:
        """Whether there is a session that has not ended. Called for each answer; without sessions it costs nothing."""
        # All sessions last equally long, so the oldest one ends first.
        if self._sessions and next(iter(self._sessions.values())).ends <= self._clock():
            self._end_old()
        return bool(self._sessions)

    def choose_texts(self, cookie: str, shown: bool) -> None:
        """Show or hide the text of conversations in one session, until it ends."""
        digest = _digest(cookie)
        if (session := self._sessions.get(digest)) is not None:
            self._sessions[digest] = replace(session, texts=shown)

    def leave(self, cookie: str) -> None:
        """End a session."""
        self._end(_digest(cookie))

    def _end_old(self) -> None:
        now = self._clock()
        for digest in [digest for digest, each in self._sessions.items() if each.ends <= now]:
            self._end(digest)

    def _end(self, digest: bytes) -> None:
        if self._sessions.pop(digest, None) is not None and not self._sessions:
            self._emptied()

    def _use(self, key: str, made: float) -> None:
        now = self._clock()
        while self._used and next(iter(self._used.values())) + LIFETIME < now:
            self._used.popitem(last=False)
        if key in self._used or not is_fresh(made, now, self._started) or len(self._used) >= _MOST_USED:
            raise SignInRefused(USED)
        self._used[key] = now

    def _begin(self) -> str:
        self._end_old()
        cookie = secrets.token_urlsafe(32)
        while len(self._sessions) >= MOST_SESSIONS:
            self._sessions.popitem(last=False)
        self._sessions[_digest(cookie)] = Session(secrets.token_urlsafe(32), self._clock() + SESSION_SECONDS)
        return cookie


def _digest(cookie: str) -> bytes:
    # The timing of a look-up by hash reveals nothing that helps to find the cookie.
    return sha256(cookie.encode("utf-8", "replace")).digest()
