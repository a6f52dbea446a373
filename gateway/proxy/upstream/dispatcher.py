"""Requests to one server: from waiting for a turn to the server's answer, or to an error.

Waits for a turn, limits the time (which is paused while a client is asked, and extended by progress), repeats once a
request that the server certainly did not begin, and tells breaker and supervisor how it went. It opens no sessions and
lists nothing.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from gateway.breaker import Admission, Breaker
from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.deadlines import CallClock, Deadlines
from gateway.errors import RpcError, UpstreamTimeout, UpstreamUnavailable
from gateway.observe.backend_metrics import ServerMetrics
from gateway.protocol.eras import PROGRESS_KEY, meta_of
from gateway.proxy.caller import Caller, Principal
from gateway.proxy.results import WrittenIds
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.transport_interface import (
    LinkLost,
    MaybeForgotten,
    NoAnswer,
    PeerError,
    SessionForgotten,
    SignInReplaced,
    Unfit,
)
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.session.in_flight import TimedCaller
from gateway.proxy.upstream.supervision.lifecycle import describe_failure, may_be_of_session
from gateway.proxy.upstream.supervision.selector import Selector
from gateway.proxy.upstream.supervision.session_member import PING_TIME, SessionMember, why_silent
from gateway.proxy.upstream.supervision.supervisor import Supervisor

# A call is refused at once if too many wait already, so that a slow server costs bounded memory.


class Full(Exception):
    """Too many calls are waiting already."""


class Users:
    """Counts users; a context that any number of them may enter at a time."""

    __slots__ = ("_count", "_empty")

    def __init__(self) -> None:
        self._count = 0
        self._empty = asyncio.Event()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return self._count > 0

    def __enter__(self) -> None:
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._empty.set()

    async def over(self) -> None:
        """Wait until there are no users."""
        while self._count:
            self._empty = asyncio.Event()
            await self._empty.wait()


class Gate:
    """Lets `limit` calls in, and `queue` calls wait."""

    def __init__(self, limit: int, queue: int) -> None:
        self._limit = limit
        self._queue = queue
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.inside = 0
        """Calls that run now."""

    @property
    def waiting(self) -> int:
        """Calls that wait now."""
        return len(self._waiting)

    def enter_at_once(self) -> bool:
        """Take a place if one is free, and return whether it was; each place taken needs one `leave`."""
        if self.inside >= self._limit:
            return False
        self.inside += 1
        return True

    async def enter(self) -> bool:
        """Take a place; every `enter` that returned needs one `leave`. Return whether it had to wait. Raises `Full`:
        `queue` calls wait already."""
        if self.enter_at_once():
            return False
        if len(self._waiting) >= self._queue:
            raise Full
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # The place was given at the very moment at which the caller was cancelled.
                self.leave()
            elif place in self._waiting:
                # It is not there if `leave` has skipped it in the meantime.
                self._waiting.remove(place)
            raise
        return True

    def leave(self) -> None:
        """Give the place to the call that has waited longest, if any is waiting."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.inside -= 1


class SessionGone(UpstreamUnavailable):
    """The session that a request had to use is gone, and the server did not begin: it can be repeated on another."""


@dataclass(slots=True)
class _Attempt:
    method: str
    params: Mapping[str, Any]
    caller: Caller
    headers: Mapping[str, str] | None
    given: SessionMember | None
    """The session that it must use; None: any."""
    receiver: Caller
    """Takes what the server pushes: the caller, wrapped if that may pause or extend the time of the call."""
    written: WrittenIds | None
    admission: Admission
    """The breaker's."""
    recheck: Callable[[], Awaitable[None]] | None = None
    had_turn: bool = False
    is_second: bool = False
    """Whether this is a repetition, because the server did not begin the first time."""
    chosen: SessionMember | None = None

    @property
    def what(self) -> str:
        name: object = self.params.get("name") or self.params.get("uri")
        if self.method == "tools/call":
            return f"the call of tool {name!r}"
        return f"{self.method} of {name!r}" if isinstance(name, str) else self.method


class Dispatcher:
    """Takes all requests to one server."""

    def __init__(
        self,
        config: UpstreamConfig,
        limits: LimitsConfig,
        metrics: ServerMetrics,
        supervisor: Supervisor,
        selector: Selector,
        gate: Gate,
        rule: ShareRule,
        given: GivenUris,
    ) -> None:
        """`gate`: how many may run at a time; the supervisor checks it too. `rule`: how many of one principal may wait.
        `given` gets every answer."""
        self.gate = gate
        setting = f"upstreams.{config.name}.queue"
        self._queued = rule.shares(
            "queued_call", config.queue, f"places in the queue of server {config.name!r}", setting
        )
        self.breaker = Breaker(config.breaker_failures, config.breaker_pause)
        self._config = config
        self._limits = limits
        self._metrics = metrics
        self._supervisor = supervisor
        self._selector = selector
        self._given = given
        self._deadlines = Deadlines()
        self._times = config.timeout or limits.tool_timeout, limits.tool_timeout_max
        """Seconds of a call's time limit, and of all its extensions together."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller,
        *,
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
        member: SessionMember | None = None,
        written: WrittenIds | None = None,
        recheck: Callable[[], Awaitable[None]] | None = None,
    ) -> dict[str, Any]:
        """Return the server's raw answer, in the caller's era.

        Args:
            params: as the server must get them, except for what concerns only the caller and us.
            seconds: time limit of the call, including its time in the queue, which progress does not extend; None: the
                configured one.
            member: the session to use; None: it is chosen by the caller.
            written: the ids that the model wrote, for a tool that takes them.
            recheck: called before it is repeated on a new session; raises if it must not be.

        Raises:
            UpstreamUnavailable: the server is away, its connection broke, request or answer can't be carried, or too
                many calls wait.
            UpstreamTimeout: the time is over; if the server had the request, it was told that nobody waits any more.
            RpcError: it answered with a JSON-RPC error, or the request names a task that is not the caller's.
        """
        if self._config.client_headers and (brought := caller.principal.headers):
            passed = {name: brought[name] for name in self._config.client_headers if name in brought}
            headers = {**passed, **(headers or {})}
        admission = self.breaker.admit(now := monotonic())
        if admission is None:
            raise self._paused(now)
        attempt = _Attempt(method, params, caller, headers, member, caller, written, admission, recheck)
        clock = CallClock(self._deadlines, *self._times) if seconds is None else CallClock(self._deadlines, seconds)
        try:
            with clock:
                if not self.gate.enter_at_once():
                    await self._wait_for_turn(caller.principal)
                try:
                    attempt.had_turn = True
                    if caller.capabilities or ("_meta" in params and PROGRESS_KEY in meta_of(params)):
                        attempt.receiver = TimedCaller(caller, clock)
                    return await self._ask(attempt)
                finally:
                    self.gate.leave()
                    self._supervisor.maintenance.used()
        except TimeoutError:
            raise self._too_late(attempt, clock) from None
        finally:
            self.breaker.inconclusive(attempt.admission)

    def give_up(self, member: SessionMember, error: LinkLost) -> None:
        """Give up a session that can't be used any more."""
        member.leave.set()
        self._supervisor.lose(member, str(error), at_once=isinstance(error, SessionForgotten))

    def unavailable(self, cause: str) -> UpstreamUnavailable:
        """The error that says why the server can't be asked."""
        return UpstreamUnavailable(f"server {self._config.name!r} is not available: {cause}", server=self._config.name)

    def _paused(self, now: float) -> UpstreamUnavailable:
        failures, wait = self._config.breaker_failures, self.breaker.wait(now)
        return self.unavailable(f"it failed {failures} times in a row and is not called for another {wait:.1f} s")

    async def _wait_for_turn(self, principal: Principal) -> None:
        """Get a turn when the gate has no free place; each turn needs one `gate.leave`."""
        came = monotonic()
        try:
            await self._queue(principal)
        except Full:
            full = f"{self._config.queue} calls are already waiting for it; call again later"
            raise self.unavailable(full) from None
        self._metrics.queued(self._config.name, monotonic() - came)

    async def _queue(self, principal: Principal) -> None:
        """Wait for a place in the gate, within the principal's share of the queue."""
        over = self._queued.take(principal)
        if over is not None and over.limit == "share":
            raise self.unavailable(over.message)
        try:
            await self.gate.enter()
        finally:
            if over is None:
                self._queued.give_back(principal)

    async def _ask(self, attempt: _Attempt) -> dict[str, Any]:
        caller, method = attempt.caller, attempt.method
        member = attempt.given or self._selector.at_once(caller, method)
        if member is None:
            member = await self._selector.for_call(caller, method)
        attempt.chosen = member
        if attempt.is_second and attempt.recheck is not None:
            await attempt.recheck()
        try:
            answer = await member.session.request(
                method, attempt.params, attempt.receiver, headers=attempt.headers, written=attempt.written
            )
        except (LinkLost, NoAnswer, PeerError) as found:
            error = SessionForgotten(str(found)) if await self._is_forgotten(member, found, attempt) else found
            if not isinstance(error, LinkLost) or error.sent or attempt.is_second:
                raise self._failure(error, attempt) from None
            # The server did not begin: it forgot our session, or could not be reached. Try once more, on a new session.
            self.give_up(member, error)
            if attempt.given is not None:
                raise SessionGone(self._broke_off(error, attempt).message, server=self._config.name) from None
        else:
            self._answered(attempt)
            self._given.note(answer, caller.principal, member)
            return answer
        attempt.is_second = True
        return await self._ask(attempt)

    async def _is_forgotten(self, member: SessionMember, error: Exception, attempt: _Attempt) -> bool:
        """Whether an error says that the server has forgotten the session, and so has not begun. Words alone don't
        prove it: they may be the tool's own."""
        if attempt.is_second or self._config.url is None or member.session.modern:
            return False
        is_told = isinstance(error, PeerError) and may_be_of_session(error.error)
        if not (is_told or isinstance(error, MaybeForgotten)):
            return False
        return isinstance(await why_silent(member, PING_TIME), SessionForgotten)

    def _answered(self, attempt: _Attempt) -> None:
        if self.breaker.failures:
            self.breaker.succeeded(attempt.admission)
        if self._supervisor.lifecycle.failures:
            self._supervisor.answered()

    def _failure(self, error: LinkLost | NoAnswer | PeerError, attempt: _Attempt) -> RpcError | UpstreamUnavailable:
        if isinstance(error, Unfit):
            return self._spoiled(error, attempt)
        if not isinstance(error, PeerError):
            return self._broke_off(error, attempt)
        self._answered(attempt)
        self._metrics.refused(self._config.name, error.error.get("code"))
        return RpcError(error.error)

    def _too_late(self, attempt: _Attempt, clock: CallClock) -> UpstreamTimeout:
        if not attempt.had_turn:
            ahead = f"{self.gate.inside} other requests are running"
            cause = f"is busy: {attempt.what} waited {clock.limit:g} s for its turn, and {ahead}; call again later"
        else:
            self._failed(attempt)
            told = "it was told to stop" if attempt.chosen is not None else "no session could be opened in that time"
            cause = f"did not answer {attempt.what} {self._time_of(clock)}; {told}"
        return UpstreamTimeout(f"server {self._config.name!r} {cause}", server=self._config.name)

    def _time_of(self, clock: CallClock) -> str:
        if clock.extended and clock.is_capped:
            return f"within {self._limits.tool_timeout_max:g} s (limits.tool_timeout_max), though it reported progress"
        return f"within {clock.limit:g} s" + (" of its last report of progress" if clock.extended else "")

    def _failed(self, attempt: _Attempt) -> None:
        self.breaker.failed(attempt.admission, monotonic())
        self._selector.suspect(attempt.chosen)

    def _broke_off(self, error: NoAnswer | LinkLost, attempt: _Attempt) -> UpstreamUnavailable:
        if attempt.chosen is None or attempt.chosen.note_failure():
            self._failed(attempt)
        cause = describe_failure(error, self._config)
        begun = error.sent if isinstance(error, LinkLost) else not isinstance(error, SignInReplaced)
        return UpstreamUnavailable(
            f"server {self._config.name!r} broke off {attempt.what}: {cause}", server=self._config.name, begun=begun
        )

    def _spoiled(self, error: Unfit, attempt: _Attempt) -> UpstreamUnavailable:
        cause = describe_failure(error, self._config)
        return UpstreamUnavailable(
            f"{attempt.what} of server {self._config.name!r} failed: {cause}", server=self._config.name, begun=True
        )
