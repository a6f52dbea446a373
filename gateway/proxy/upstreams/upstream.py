"""One MCP server behind us, as the rest of the proxy sees it: the door for requests.

Turns a request of any caller into an answer or into one of four errors: waits its turn, keeps the time (which stands
still while a person is asked), repeats once what the server certainly did not begin, and tells breaker and supervisor
how it went. It does not know other servers or public names. `proxy.py` stands above; `choice.py` (which session answers
whom) and `supervisor.py` (the main session) below.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Protocol

import anyio

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.errors import RpcError, UpstreamTimeout, UpstreamUnavailable
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Caller, ClientSession
from gateway.proxy.upstreams.breaker import Breaker
from gateway.proxy.upstreams.choice import Choice
from gateway.proxy.upstreams.failures import describe_failure
from gateway.proxy.upstreams.follow import Follower
from gateway.proxy.upstreams.gate import Full, Gate, Users
from gateway.proxy.upstreams.helping import Allowance
from gateway.proxy.upstreams.listing import Kind, Listed
from gateway.proxy.upstreams.members import Dial, Member, Opener
from gateway.proxy.upstreams.patience import Patience
from gateway.proxy.upstreams.pins import Pins
from gateway.proxy.upstreams.session import ListKind
from gateway.proxy.upstreams.supervisor import Supervisor
from gateway.proxy.wires.wire import LinkLost, NoAnswer, PeerError, SessionForgotten, Unfit

_RELISTING: Final = 3.0
"""Seconds to wait for a list that is known already, from when it was last asked for."""


class SessionGone(UpstreamUnavailable):
    """The session that a request was to use is gone, and the server did not begin: it can be put again on another."""


@dataclass(slots=True)
class _Attempt:
    """One request on its way."""

    method: str
    params: Mapping[str, Any]
    caller: Caller
    headers: Mapping[str, str] | None
    given: Member | None
    """The session that it must use."""
    hearer: Caller
    """Who hears what the server pushes: the caller, whom asking costs none of the call's time."""
    had_turn: bool = False
    chosen: Member | None = None

    @property
    def what(self) -> str:
        """The request, in words."""
        name: object = self.params.get("name") or self.params.get("uri")
        if self.method == "tools/call":
            return f"the call of tool {name!r}"
        return f"{self.method} of {name!r}" if isinstance(name, str) else self.method


class Listener(Protocol):
    """Who hears of changes."""

    def upstream_changed(self, server: str, kind: ListKind | None, session: ClientSession | None) -> None:
        """A list changed (None: the server came or went); `session`: only for this client."""
        ...

    def resource_updated(self, server: str, uri: str) -> None:
        """A resource changed that the main session watches."""
        ...


class Upstream:
    """One server."""

    def __init__(
        self, config: UpstreamConfig, limits: LimitsConfig, metrics: Metrics, dial: Dial, listener: Listener
    ) -> None:
        """Nothing starts before `run`."""
        self.config = config
        self.gate = Gate(config.concurrency, config.queue)
        self.breaker = Breaker(config.breaker_failures, config.breaker_pause)
        self._limits = limits
        self._metrics = metrics
        self._listener = listener
        self.pins = Pins(config, metrics)
        opener = Opener(
            config, dial, metrics, self, self.pins, result_bytes=limits.result_bytes, time=limits.start_timeout
        )
        self.allowance = Allowance(config.name, config.sampling_tokens)
        self.follower = Follower(config.name)
        self.supervisor = Supervisor(
            config,
            limits,
            metrics,
            opener,
            self.follower,
            on_change=self._changed,
            is_busy=lambda: self.gate.inside > 0,
            on_doze=self._dozed,
        )
        self.used = Users()
        """While this is entered somebody is not through with the server, though no request of theirs need run."""
        self.choice = Choice(config, self.supervisor, opener, self.allowance)

    @property
    def up(self) -> bool:
        """Whether a call would go through at once."""
        return self.supervisor.main is not None

    @property
    def there(self) -> bool:
        """Whether what it offers can be had: it is up, or would be for whoever asks."""
        return self.up or (self.supervisor.asleep and self.supervisor.last is not None)

    @property
    def offers(self) -> Mapping[str, Any]:
        """Its capabilities, from when it was last up."""
        last = self.supervisor.last
        return {} if last is None else last.session.capabilities

    async def run(self) -> None:
        """Keep the server started until `stop`."""
        async with anyio.create_task_group() as tasks:
            self.choice.begin(tasks)
            await self.supervisor.run()
            self.choice.close()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Ask `run` to end everything of the server and return."""
        self.supervisor.stop()
        self.choice.close()

    async def unused(self) -> None:
        """Wait until nobody uses it. For one that is to be stopped: new users are its owner's to keep out."""
        await self.used.over()

    def known(self, kind: Kind) -> Listed | None:
        """What the main session last listed, even if the server is away."""
        last = self.supervisor.last
        return None if last is None else last.listing.known(kind)

    def count(self, kind: Kind) -> int:
        """How many it lists now; none while it is not up."""
        listed = self.known(kind)
        return len(listed.items) if self.up and listed is not None else 0

    async def listed(self, kind: Kind, caller: Caller) -> tuple[Listed, Member]:
        """The list as `caller` would see it, and the session that gave it.

        Raises:
            UpstreamUnavailable: it can't be asked.
        """
        last = self.supervisor.last
        if self.supervisor.asleep and last is not None and (kept := last.listing.known(kind)) is not None:
            # Nobody needs the server for what it said before it was put to sleep.
            return kept, last
        member = await self.choice.for_lists(caller)
        try:
            return await self._list(kind, member)
        except LinkLost as error:
            self._give_up(member, error)
            if error.sent:
                raise self._unavailable(describe_failure(error, self.config)) from None
        member = await self.choice.for_lists(caller)
        try:
            return await self._list(kind, member)
        except LinkLost as error:
            raise self._unavailable(describe_failure(error, self.config)) from None

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller,
        *,
        seconds: float | None = None,
        headers: Mapping[str, str] | None = None,
        member: Member | None = None,
    ) -> dict[str, Any]:
        """The server's raw answer, in the caller's era.

        Args:
            params: as the server is to get them, but for the caller's own hop.
            seconds: for the call, its time in the queue included; the configured time when unset.
            member: the session to use; chosen by the caller when unset.

        Raises:
            UpstreamUnavailable: it is away, left in the middle, or too many wait for it.
            UpstreamTimeout: it did not answer; it has been told that nobody waits any more.
            RpcError: it answered with a JSON-RPC error, or the params can't be written.
        """
        caller = self.allowance.help(caller)
        attempt = _Attempt(method, params, caller, headers, member, caller)
        seconds = seconds or self.config.timeout or self._limits.tool_timeout
        try:
            async with asyncio.timeout(seconds) as clock:
                await self._enter()
                try:
                    attempt.had_turn = True
                    if caller.capabilities:
                        attempt.hearer = Patience(caller, clock)
                    return await self._ask(attempt)
                finally:
                    self._leave()
        except TimeoutError:
            raise self._too_late(attempt, seconds) from None

    @asynccontextmanager
    async def lease(self, caller: Caller) -> AsyncGenerator[Member, None]:
        """A session of the handshake era for this caller alone, to `request` on (see `Choice.bridges`).

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        with self.used:
            async with self.choice.lease(caller) as member:
                yield member

    def helped(self, caller: Caller) -> Caller:
        """The caller, with our engine to sample in its stead where it can't and the operator lets it."""
        return self.allowance.help(caller)

    def sessions(self) -> int:
        """How many sessions are open."""
        return len(self.choice)

    def _dozed(self) -> None:
        # Their processes are as idle as the main one's: while a call runs nothing dozes.
        self.choice.close()

    def _changed(self, kinds: Collection[ListKind]) -> None:
        for kind in kinds or (None,):
            self._listener.upstream_changed(self.config.name, kind, None)

    def list_changed(self, kind: ListKind, member: Member) -> None:
        """A session says that a list changed (`Changes`)."""
        if member.session.owner is None or member.session.owner is self.supervisor.adopted:
            self.supervisor.changed(kind)
        else:
            self._listener.upstream_changed(self.config.name, kind, member.session.owner)

    def updated(self, uri: str, member: Member) -> None:
        """A session says that a resource changed (`Changes`)."""
        if member.session.owner is None:
            self._listener.resource_updated(self.config.name, uri)

    async def sample(self, params: dict[str, Any]) -> dict[str, Any]:
        """A session asks for a generation that no client can be asked for (`Changes`)."""
        return await self.allowance.spend(params)

    async def _enter(self) -> None:
        """Wait for a turn; whoever got one must `_leave`."""
        came = monotonic()
        wait = self.breaker.admit(came)
        if wait is not None:
            raise self._unavailable(
                f"it failed {self.config.breaker_failures} times in a row and is left alone for {wait:.1f} s more"
            )
        try:
            if await self.gate.enter():
                self._metrics.servers.queued(self.config.name, monotonic() - came)
        except BaseException as error:
            self.breaker.left()
            if isinstance(error, Full):
                full = f"{self.config.queue} calls wait for it already; call again later"
                raise self._unavailable(full) from None
            raise

    def _leave(self) -> None:
        self.gate.leave()
        self.supervisor.tender.used()
        # One that ended without a verdict must not leave all others waiting for it.
        self.breaker.left()

    async def _ask(self, attempt: _Attempt) -> dict[str, Any]:
        chosen = attempt.chosen = attempt.given or await self.choice.for_call(attempt.caller)
        try:
            return await self._put(attempt, chosen)
        except LinkLost as error:
            if error.sent:
                raise self._broke_off(error, attempt) from None
            cause = error
        # The server did not begin: it forgot us, or could not be reached. Once more, on a new session.
        self._give_up(chosen, cause)
        if attempt.given is not None:
            raise SessionGone(self._broke_off(cause, attempt).message, server=self.config.name)
        fresh = attempt.chosen = await self.choice.for_call(attempt.caller)
        try:
            return await self._put(attempt, fresh)
        except LinkLost as error:
            raise self._broke_off(error, attempt) from None

    async def _put(self, attempt: _Attempt, member: Member) -> dict[str, Any]:
        try:
            answer = await member.session.request(
                attempt.method, attempt.params, attempt.hearer, headers=attempt.headers
            )
        except Unfit as error:
            raise self._spoiled(error, attempt) from None
        except NoAnswer as error:
            raise self._broke_off(error, attempt) from None
        except PeerError as error:
            raise self._answered_with(error) from None
        self.breaker.succeeded()
        return answer

    async def _list(self, kind: Kind, member: Member) -> tuple[Listed, Member]:
        """Raises UpstreamUnavailable, LinkLost."""
        known = member.listing.known(kind)
        seconds = self._limits.start_timeout if known is None else min(_RELISTING, self._limits.start_timeout)
        try:
            with anyio.fail_after(seconds):
                return await member.listing.get(kind), member
        except TimeoutError:
            self.choice.suspect(member)
            if known is not None:
                # One that hangs must not hold up the lists of all others.
                return known, member
            raise self._unavailable(f"it did not list its {kind} in time") from None
        except (PeerError, NoAnswer) as error:
            raise self._unavailable(describe_failure(error, self.config)) from None

    def _give_up(self, member: Member, error: LinkLost) -> None:
        """The session is of no use any more."""
        member.leave.set()
        self.supervisor.lose(member, str(error), at_once=isinstance(error, SessionForgotten))

    def _answered_with(self, error: PeerError) -> RpcError:
        self.breaker.succeeded()
        self._metrics.servers.refused(self.config.name, error.error.get("code"))
        return RpcError(error.error)

    def _too_late(self, attempt: _Attempt, seconds: float) -> UpstreamTimeout:
        if not attempt.had_turn:
            ahead = f"{self.gate.inside} others run"
            cause = f"is busy: {attempt.what} waited {seconds:g} s for its turn while {ahead}; call again later"
        else:
            self._failed(attempt)
            told = "it was told to stop" if attempt.chosen is not None else "it gave no session in that time"
            cause = f"did not answer {attempt.what} within {seconds:g} s; {told}"
        return UpstreamTimeout(f"server {self.config.name!r} {cause}", server=self.config.name)

    def _failed(self, attempt: _Attempt) -> None:
        self.breaker.failed(monotonic())
        self.choice.suspect(attempt.chosen)

    def _broke_off(self, error: NoAnswer | LinkLost, attempt: _Attempt) -> UpstreamUnavailable:
        self._failed(attempt)
        cause = describe_failure(error, self.config)
        return UpstreamUnavailable(
            f"server {self.config.name!r} broke off {attempt.what}: {cause}", server=self.config.name
        )

    def _spoiled(self, error: Unfit, attempt: _Attempt) -> UpstreamUnavailable:
        cause = describe_failure(error, self.config)
        return UpstreamUnavailable(
            f"{attempt.what} of server {self.config.name!r} failed: {cause}", server=self.config.name
        )

    def _unavailable(self, cause: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"server {self.config.name!r} is not available: {cause}", server=self.config.name)
