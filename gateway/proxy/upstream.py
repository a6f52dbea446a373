"""One MCP server behind us, as the rest of the proxy sees it: the door for requests.

Turns a request of any caller into an answer or into one of four errors: chooses the session that fits the caller, waits
its turn, keeps the time (which stands still while a person is asked), repeats once what the server certainly did not
begin, and tells breaker and supervisor how it went. It does not know other servers or public names. `proxy.py` stands
above; `supervisor.py` (the main session) and `pool.py` (the others) below.
"""

import asyncio
from collections.abc import AsyncGenerator, Collection, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Final, Protocol, cast

import anyio

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.errors import RpcError, UpstreamTimeout, UpstreamUnavailable
from gateway.observe.metrics import Metrics
from gateway.proxy.breaker import Breaker
from gateway.proxy.caller import NOBODY, Caller, ClientSession
from gateway.proxy.failures import describe_failure
from gateway.proxy.follow import Follower
from gateway.proxy.gate import Full, Gate
from gateway.proxy.helping import CAPABILITY, Allowance, Helped
from gateway.proxy.listing import Kind, Listed
from gateway.proxy.negotiation import Terms
from gateway.proxy.params import why_unwritable
from gateway.proxy.patience import Patience
from gateway.proxy.pins import Pins
from gateway.proxy.pool import Dial, Member, Opener, Pool
from gateway.proxy.session import ListKind, refusal
from gateway.proxy.supervisor import Supervisor
from gateway.proxy.wire import LinkLost, NoAnswer, PeerError, SessionForgotten
from gateway.rpc.messages import INVALID_PARAMS

ASKABLE: Final = frozenset({"elicitation", "roots", "sampling"})
"""What a client may announce that it can be asked for."""


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
        self._opener = Opener(
            config, dial, metrics, self, self.pins, result_bytes=limits.result_bytes, time=limits.start_timeout
        )
        self.allowance = Allowance(config.name, config.sampling_tokens)
        self.follower = Follower(config.name)
        self.supervisor = Supervisor(
            config,
            limits,
            metrics,
            self._opener,
            self.follower,
            on_change=self._changed,
            is_busy=lambda: self.gate.inside > 0,
        )
        self._pool: Pool | None = None
        self._handshake = config.protocol != "modern"
        """Whether sessions of the handshake era can be had; learned by trying."""

    @property
    def up(self) -> bool:
        """Whether a call would go through at once."""
        return self.supervisor.main is not None

    @property
    def offers(self) -> Mapping[str, Any]:
        """Its capabilities, from when it was last up."""
        last = self.supervisor.last
        return {} if last is None else last.session.capabilities

    async def run(self) -> None:
        """Keep the server started until `stop`."""
        async with anyio.create_task_group() as tasks:
            self._pool = Pool(self.config, self._opener, tasks)
            tasks.start_soon(self._pool.sweep)
            await self.supervisor.run()
            self._pool.close()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Ask `run` to end everything of the server and return."""
        self.supervisor.stop()
        if self._pool is not None:
            self._pool.close()

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
        member = await self._peek(caller)
        try:
            with anyio.fail_after(self._limits.start_timeout):
                return await member.listing.get(kind), member
        except TimeoutError:
            self.supervisor.suspect()
            raise self._unavailable(f"it did not list its {kind} in time") from None
        except (PeerError, NoAnswer, LinkLost) as error:
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
        caller = self.helped(caller)
        seconds = seconds or self.config.timeout or self._limits.tool_timeout
        try:
            async with asyncio.timeout(seconds) as clock:
                async with self._admitted():
                    patient = Patience(caller, clock) if caller.capabilities else caller
                    return await self._ask(method, params, patient, caller, headers, member)
        except TimeoutError:
            self._failed()
            raise UpstreamTimeout(
                f"server {self.config.name!r} did not answer {_what(method, params)} within {seconds:g} s; "
                "it was told to stop",
                server=self.config.name,
            ) from None

    @asynccontextmanager
    async def lease(self, caller: Caller) -> AsyncGenerator[Member, None]:
        """A session of the handshake era for this caller alone (see `bridges`).

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        await self.supervisor.want()
        async with self._living_pool().lease(Terms(("handshake",), self.helped(caller).capabilities)) as member:
            yield member

    def helped(self, caller: Caller) -> Caller:
        """The caller, with our engine to sample in its stead where it can't and the operator lets it."""
        if not self.config.sampling_tokens or CAPABILITY in caller.capabilities or not self.allowance.open:
            return caller
        return Helped(caller, self.allowance)

    def bridges(self, caller: Caller) -> bool:
        """Whether the server may push requests to this caller that only a new round of its own can carry."""
        main = self.supervisor.main
        return (
            caller.modern
            and main is not None
            and not main.session.modern
            and self.config.sessions != "shared"
            and not ASKABLE.isdisjoint(caller.capabilities)
        )

    async def has_own(self, caller: Caller) -> bool:
        """Whether a session stands for this caller alone, so that what the server pushes on it is the caller's.

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        return (await self._choose(caller)).session.owner is not None

    def own_session(self, session: ClientSession) -> Member | None:
        """The session that stands for this client, if there is one open."""
        if session is self.supervisor.adopted:
            return self.supervisor.main
        return None if self._pool is None else self._pool.find(session)

    def release(self, session: ClientSession) -> None:
        """The client is gone."""
        if self._pool is not None:
            self._pool.release(session)

    def sessions(self) -> int:
        """How many sessions are open."""
        return (1 if self.up else 0) + (0 if self._pool is None else len(self._pool))

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

    @asynccontextmanager
    async def _admitted(self) -> AsyncGenerator[None, None]:
        came = monotonic()
        wait = self.breaker.admit(came)
        if wait is not None:
            raise self._unavailable(
                f"it failed {self.config.breaker_failures} times in a row and is left alone for {wait:.1f} s more"
            )
        try:
            if await self.gate.enter():
                self._metrics.servers.queued(self.config.name, monotonic() - came)
        except Full:
            self.breaker.left()
            raise self._unavailable(f"{self.config.queue} calls wait for it already; call again later") from None
        except asyncio.CancelledError:
            self.breaker.left()
            raise
        try:
            yield
        finally:
            self.gate.leave()

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any],
        patient: Caller,
        caller: Caller,
        headers: Mapping[str, str] | None,
        member: Member | None,
    ) -> dict[str, Any]:
        chosen = member or await self._choose(caller)
        try:
            answer = await chosen.session.request(method, params, patient, headers=headers)
        except SessionForgotten as error:
            return await self._again(chosen, error, method, params, patient, caller, headers, member)
        except LinkLost as error:
            if not error.sent:
                return await self._again(chosen, error, method, params, patient, caller, headers, member)
            raise self._broke_off(error, method, params) from None
        except NoAnswer as error:
            self._failed()
            raise self._broke_off(error, method, params) from None
        except PeerError as error:
            raise self._answered_with(error) from None
        except asyncio.CancelledError:
            self.breaker.left()
            raise
        except ValueError as error:
            self.breaker.left()
            raise refusal(
                INVALID_PARAMS, f"{_what(method, params)} was not asked: {why_unwritable(params) or error}"
            ) from None
        self.breaker.succeeded()
        return answer

    async def _again(
        self,
        chosen: Member,
        error: LinkLost,
        method: str,
        params: Mapping[str, Any],
        patient: Caller,
        caller: Caller,
        headers: Mapping[str, str] | None,
        member: Member | None,
    ) -> dict[str, Any]:
        """Once more on a new session: the server did not begin (it forgot us, or could not be reached)."""
        chosen.leave.set()
        self.supervisor.lose(chosen, str(error), at_once=isinstance(error, SessionForgotten))
        if member is not None:
            raise self._broke_off(error, method, params)
        fresh = await self._choose(caller)
        if fresh is chosen:
            raise self._broke_off(error, method, params)
        try:
            answer = await fresh.session.request(method, params, patient, headers=headers)
        except PeerError as refused:
            raise self._answered_with(refused) from None
        except (LinkLost, NoAnswer) as failed:
            raise self._broke_off(failed, method, params) from None
        self.breaker.succeeded()
        return answer

    async def _choose(self, caller: Caller) -> Member:
        """The session for a call of this caller."""
        main = self.supervisor.main or await self.supervisor.want()
        session = caller.session
        if session is None or session is self.supervisor.adopted or not self._needs_own(main, session):
            return main
        try:
            member = await self._living_pool().own(session, Terms(("handshake",), self._announced(session)))
        except UpstreamUnavailable:
            if not main.session.modern:
                raise
            # It speaks the modern era only; its pushes come as rounds, which need no session.
            self._handshake = False
            return main
        if session.log_level is not None and "logging" in member.session.capabilities and not member.told_level:
            member.told_level = True
            await member.session.request("logging/setLevel", {"level": session.log_level})
        return member

    async def _peek(self, caller: Caller) -> Member:
        """The session whose lists this caller sees."""
        main = self.supervisor.main or await self.supervisor.want()
        if self.bridges(caller):
            return await self._living_pool().peek(Terms(("handshake",), self.helped(caller).capabilities))
        return await self._choose(caller) if caller is not NOBODY else main

    def _needs_own(self, main: Member, session: ClientSession) -> bool:
        if self.config.sessions == "shared" or not self._handshake:
            return False
        if self.config.sessions == "per_client":
            return True
        offered = main.session.capabilities
        resources: object = offered.get("resources")
        subscribes = isinstance(resources, dict) and cast(dict[str, Any], resources).get("subscribe") is True
        pushes = "logging" in offered or subscribes
        return pushes or not ASKABLE.isdisjoint(session.capabilities)

    def _announced(self, session: ClientSession) -> Mapping[str, Any]:
        return {CAPABILITY: {}, **session.capabilities} if self.allowance.open else session.capabilities

    def _living_pool(self) -> Pool:
        if self._pool is None:
            raise self._unavailable("it is not started")
        return self._pool

    def _answered_with(self, error: PeerError) -> RpcError:
        self.breaker.succeeded()
        self._metrics.servers.refused(self.config.name, error.error.get("code"))
        return RpcError(error.error)

    def _failed(self) -> None:
        self.breaker.failed(monotonic())
        self.supervisor.suspect()

    def _broke_off(self, error: Exception, method: str, params: Mapping[str, Any]) -> UpstreamUnavailable:
        self._failed()
        return UpstreamUnavailable(
            f"server {self.config.name!r} broke off {_what(method, params)}: {describe_failure(error, self.config)}",
            server=self.config.name,
        )

    def _unavailable(self, cause: str) -> UpstreamUnavailable:
        return UpstreamUnavailable(f"server {self.config.name!r} is not available: {cause}", server=self.config.name)


def _what(method: str, params: Mapping[str, Any]) -> str:
    name: object = params.get("name") or params.get("uri")
    if method == "tools/call":
        return f"the call of tool {name!r}"
    return f"{method} of {name!r}" if isinstance(name, str) else method
