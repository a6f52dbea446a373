"""Keeps the main session with one server alive.

One task (`run`) opens the session, lists what the server offers, has it tended (`maintenance.py`), and opens it again
after a pause that `lifecycle.py` computes. A lazy server is started when somebody `want`s it, an idle one may be put to
sleep until then. It knows no calls and, except an adopted one, no clients: `selector.py` asks it for the main session.
"""

import random
from collections.abc import Callable, Collection
from typing import Final

import anyio

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import ClientSession
from gateway.proxy.transport.transport_interface import LinkLost
from gateway.proxy.upstream.session.negotiation import Era, Terms
from gateway.proxy.upstream.session.session import ListKind
from gateway.proxy.upstream.supervision.lifecycle import Backoff, Lifecycle, describe_ending, describe_failure
from gateway.proxy.upstream.supervision.maintenance import Follower, Maintenance, list_all
from gateway.proxy.upstream.supervision.session_member import Opener, SessionMember, tell_level

_RESTART_TIME: Final = 2.0
"""Seconds that a request waits for a server that is being restarted."""


class Supervisor:
    """Owns one server's main session."""

    def __init__(
        self,
        config: UpstreamConfig,
        limits: LimitsConfig,
        metrics: Metrics,
        opener: Opener,
        follower: Follower,
        on_change: Callable[[Collection[ListKind]], None],
        is_busy: Callable[[], bool],
        on_stop_idle: Callable[[], None],
        *,
        is_common: bool,
    ) -> None:
        """Starts nothing before `run`.

        Args:
            on_change: called with the lists that the server says have changed; with none, when it came up or went down.
            on_stop_idle: called when the server is stopped because nobody needs it.
            is_common: whether this session says if the server is up; else it is only one principal's.
        """
        self.lifecycle = Lifecycle()
        self.main: SessionMember | None = None
        self.adopted: ClientSession | None = None
        """The only client (over standard input and output), if the main session is its own."""
        self.last: SessionMember | None = None
        """The main session of the last time the server was up: its lists decide who owns a name."""
        self.settled = anyio.Event()
        """Set once the server has come up or failed for the first time, or sleeps until it is wanted."""
        self.ended = anyio.Event()
        """Set when `run` has ended and nothing of the server is left."""
        self._config = config
        self._limits = limits
        self._metrics = metrics
        self._opener = opener
        self._on_change = on_change
        self._on_stop_idle = on_stop_idle
        self._is_common = is_common
        self.maintenance = Maintenance(config, limits, follower, on_change, is_busy)
        self._log = get_logger("gateway.proxy").bind(server=config.name)
        self._backoff = Backoff(limits.restart_backoff, limits.restart_backoff_max)
        self._eras = _eras(config)
        self._stopping = anyio.Event()
        self._wanted = anyio.Event()
        self._leave_cause = ""
        self._changed_state = anyio.Event()
        self._resumes = 0.0
        """The loop's time at which the pause before the next start ends."""
        self._at_once = False
        self._opening = anyio.CancelScope()

    async def run(self) -> None:
        """Keep the server started until `stop`."""
        try:
            if self._config.start == "lazy":
                await self._sleep()
            while not self._stopping.is_set():
                await self._live_once()
                if self._stopping.is_set():
                    return
                if self.lifecycle.state == "idle":
                    await self._sleep()
                elif not self._at_once:
                    await self._pause()
                self._at_once = False
                if self._stopping.is_set():
                    return
                self._begin_again()
        finally:
            self.ended.set()

    def adopt(self, session: ClientSession) -> None:
        """Make the main session this client's own; it is the only one there will be. Call it before `run`."""
        self.adopted = session

    def stop(self) -> None:
        """Ask `run` to end the server and return."""
        self._stopping.set()
        self._wanted.set()
        if self.main is not None:
            self.main.leave.set()
        else:
            self._opening.cancel()
        self._wake()

    def lose(self, member: SessionMember, cause: str, *, at_once: bool = False) -> None:
        """Give up the main session, which can't be used any more, and have another one opened.

        `at_once`: the server is there and has only forgotten the session, so there is no need for a pause.
        """
        if self.main is member:
            self.main = None
            self._leave_cause = cause
            self._at_once = at_once
            if at_once:
                self.lifecycle = self.lifecycle.woke()
            member.leave.set()

    def stop_idle(self, member: SessionMember) -> None:
        """End the server, which nobody has needed for a while, until somebody `want`s it."""
        self.lifecycle = self.lifecycle.fell_asleep()
        self.main = None
        member.leave.set()
        self._on_stop_idle()

    @property
    def asleep(self) -> bool:
        """Whether the server is not running because nobody needs it, and will be started for whoever does."""
        return self.lifecycle.state == "idle" and not self._stopping.is_set()

    async def want(self) -> SessionMember:
        """Return the main session. Wakes a sleeping server, and waits a limited time for one that is not up. Raises
        `UpstreamUnavailable`: the server is not up; the message says why."""
        self.maintenance.used()
        with anyio.move_on_after(self._limits.start_timeout + 1.0):
            while self.main is None and self.lifecycle.state in ("idle", "starting") and not self._stopping.is_set():
                # Set each time: it may have been about to sleep when it was first woken.
                self._wanted.set()
                await self._changed_state.wait()
        if self.main is None:
            await self._restarted()
        if self.main is None:
            raise UpstreamUnavailable(
                f"server {self._config.name!r} is not available: {self.why_away()}; "
                "the gateway keeps trying to start it, call again later",
                server=self._config.name,
            )
        return self.main

    async def _restarted(self) -> None:
        """Wait for a server that will be back in a moment, so that calls in between don't fail."""
        if self.last is None:
            # It was never up, so there is no reason to expect that it will be.
            return
        with anyio.move_on_after(_RESTART_TIME):
            while (
                self.main is None
                # A server that is up without a session is just going down.
                and self.lifecycle.state in ("up", "restarting")
                and not self._stopping.is_set()
                and self._resumes - anyio.current_time() < _RESTART_TIME
            ):
                await self._changed_state.wait()

    def answered(self) -> None:
        """Note that a request was answered: earlier failures no longer count."""
        if self.lifecycle.failures:
            self.lifecycle = self.lifecycle.answered()

    def why_away(self) -> str:
        """Why the server is not up, as words that can follow a colon."""
        return self.lifecycle.last_error or "it is still starting"

    def list_again(self) -> None:
        """List the tools again, because what may be shown of them has changed."""
        if self.main is not None:
            self.main.forget("tools")
            self.maintenance.changed()

    def list_in_doubt(self) -> None:
        """List again soon, because the lists may have changed without notice."""
        if self.main is not None:
            self.main.doubt()
            self.maintenance.changed()

    def changed(self, kind: ListKind) -> None:
        """List again soon, because the server says that this list has changed."""
        self._metrics.list_changed(self._config.name, kind)
        self.maintenance.changed(kind)

    def _wake(self) -> None:
        event, self._changed_state = self._changed_state, anyio.Event()
        event.set()

    async def _sleep(self) -> None:
        self.lifecycle = self.lifecycle.fell_asleep()
        self.settled.set()
        self._wake()
        if not self._stopping.is_set():
            self._wanted = anyio.Event()
        await self._wanted.wait()
        self.lifecycle = self.lifecycle.woke()

    def _begin_again(self) -> None:
        if self.lifecycle.state == "restarting":
            self.lifecycle = self.lifecycle.started_again()
            self._metrics.upstream_restarted(self._config.name)

    async def _live_once(self) -> None:
        """Run the server once, from its start to its end, whatever ends it."""
        cause = "the gateway is stopping"
        try:
            with anyio.CancelScope() as self._opening:
                cause = await self._connect()
        except Exception as error:  # noqa: BLE001 - the one boundary: no failure of one server may reach another
            cause = describe_failure(error, self._config)
            if isinstance(error, LinkLost) and self._config.command is not None and len(self._eras) > 1:
                # An unknown request may have made it exit: next time, try the handshake first.
                self._eras = ("handshake", "modern")
        finally:
            self.main = None
        self._went_down(cause)

    async def _connect(self) -> str:
        """Open the session and wait until it ends. Return why it ended."""
        self._leave_cause = ""
        terms = Terms(self._eras, {})
        if self.adopted is not None:
            eras: tuple[Era, ...] = ("handshake", "modern") if len(self._eras) > 1 else self._eras
            terms = Terms(eras, self.adopted.capabilities)
        async with self._opener.opened(terms, self.adopted, main=self.adopted is None) as member:
            if self._stopping.is_set():
                return "the gateway is stopping"
            with anyio.move_on_after(self._limits.start_timeout) as starting:
                await list_all(member)
            if starting.cancelled_caught:
                return f"it did not list what it offers within {self._limits.start_timeout:g} s (limits.start_timeout)"
            if self.adopted is not None:
                await tell_level(member, self.adopted.log_level)
            self._came_up(member)
            try:
                await self.maintenance.tend(member, self)
            finally:
                # Reset now, because ending a process may take seconds in which no call must use this session any more.
                self.main = None
        return self._leave_cause or describe_ending(self._config)

    def _came_up(self, member: SessionMember) -> None:
        self.main = self.last = member
        self.lifecycle = self.lifecycle.came_up()
        self._tell_up(True)
        tools = member.listing.known("tools")
        self._log.info(
            "upstream is up",
            tools=len(tools.items) if tools else 0,
            protocol=member.session.version,
            restarts=self.lifecycle.restarts,
        )
        self._on_change(())
        self.settled.set()
        self._wake()

    def _went_down(self, cause: str) -> None:
        self._tell_up(False)
        if self.lifecycle.state == "idle":
            # What it offers stays offered: a call wakes it.
            self._log.info("upstream was idle and has been stopped")
        elif self._at_once:
            self._log.info("upstream has forgotten the session; opening a new one", cause=cause)
        else:
            self.lifecycle = self.lifecycle.went_down(cause)
            # Not a secret: the random number only spreads restarts over time.
            pause = self._backoff.pause(self.lifecycle.failures, random.random())  # noqa: S311
            self._resumes = anyio.current_time() + pause
            # That nobody has signed in for all callers is usual where each user does: it is said once.
            is_usual = self._config.is_per_user and self.lifecycle.failures > 1
            if not is_usual and not self._stopping.is_set():
                self._log.warning("upstream is down", cause=cause, failures=self.lifecycle.failures)
            self._on_change(())
        self.settled.set()
        self._wake()

    def _tell_up(self, up: bool) -> None:
        if self._is_common:
            self._metrics.upstream_up(self._config.name, up)

    async def _pause(self) -> None:
        with anyio.CancelScope(deadline=self._resumes):
            await self._stopping.wait()


def _eras(config: UpstreamConfig) -> tuple[Era, ...]:
    if config.protocol == "auto":
        return ("modern", "handshake")
    return (config.protocol,)
