"""The background work for a session that is up: listing again, subscribing, pinging, and stopping when idle.

Runs the tasks that a main session needs, and ends them with it. It reports what it finds: lists that changed, a server
that hangs, a server that nobody needs. It opens nothing and decides on no restart.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Collection
from time import monotonic
from typing import Any, Final, Protocol, cast

import anyio

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, SessionForgotten
from gateway.proxy.upstream.session.session import ListKind, Session
from gateway.proxy.upstream.supervision.lifecycle import describe_failure
from gateway.proxy.upstream.supervision.listing import KINDS
from gateway.proxy.upstream.supervision.session_member import PING_TIME, SessionMember, until_over, why_silent

# In the modern era a subscription is one `subscriptions/listen` stream, opened again whenever the set of resources
# changes or the stream ends; in the handshake era it is a `resources/subscribe` for each resource, repeated on a new
# session.

_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_SETTLING: Final = 5.0
_ANSWERING: Final = 10.0
"""Seconds to wait for the answer to one subscription, since the others wait behind it."""
_FLAGS: Final = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}


class Follower:
    """What is watched on one server, and the task that subscribes to it."""

    def __init__(self, server: str) -> None:
        self._wanted: Counter[str] = Counter()
        self._changed = anyio.Event()
        self._subscribed: set[str] | None = None
        """The resources subscribed to one by one (handshake era); None: in the modern era, or without a session."""
        self._asked = anyio.Event()
        self._log = get_logger("gateway.proxy").bind(server=server)

    def want(self, uri: str) -> None:
        """Add a watcher of this resource."""
        self._wanted[uri] += 1
        if self._wanted[uri] == 1:
            self._wake()

    def drop(self, uri: str) -> None:
        """Remove a watcher of this resource."""
        self._wanted[uri] -= 1
        if self._wanted[uri] <= 0:
            del self._wanted[uri]
            self._wake()

    @property
    def watches(self) -> bool:
        """Whether any resource is watched."""
        return bool(self._wanted)

    async def settled(self, uri: str) -> None:
        """Wait, for a limited time, until this resource was subscribed to; returns at once in the modern era."""
        with anyio.move_on_after(_SETTLING):
            while self._subscribed is not None and uri in self._wanted and uri not in self._subscribed:
                await self._asked.wait()

    async def follow(self, member: SessionMember) -> None:
        """Keep the session subscribed until cancelled."""
        if member.session.modern:
            await self._listen(member.session)
            return
        self._subscribed = set()
        try:
            await self._subscribe(member.session, self._subscribed)
        finally:
            self._subscribed = None
            self._tell_asked()

    def _wake(self) -> None:
        event, self._changed = self._changed, anyio.Event()
        event.set()

    def _tell_asked(self) -> None:
        event, self._asked = self._asked, anyio.Event()
        event.set()

    async def _subscribe(self, session: Session, subscribed: set[str]) -> None:
        while True:
            changed = self._changed
            wanted = set(self._wanted)
            for uri in sorted(wanted - subscribed):
                await self._ask(session, "resources/subscribe", {"uri": uri}, _ANSWERING)
                subscribed.add(uri)
                self._tell_asked()
            for uri in sorted(subscribed - wanted):
                await self._ask(session, "resources/unsubscribe", {"uri": uri}, _ANSWERING)
                subscribed.remove(uri)
            await changed.wait()

    async def _listen(self, session: Session) -> None:
        pause = _PAUSE
        while True:
            changed = self._changed
            asked = self._filter(session)
            if not asked:
                await changed.wait()
                continue
            began = anyio.current_time()
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_cancel_on, changed, scope)
                    await self._ask(session, "subscriptions/listen", {"notifications": asked})
                    tasks.cancel_scope.cancel()
            if changed.is_set():
                continue
            pause = _PAUSE if anyio.current_time() - began > _LONGEST_PAUSE else min(pause * 2, _LONGEST_PAUSE)
            with anyio.move_on_after(pause):
                await changed.wait()

    def _filter(self, session: Session) -> dict[str, Any]:
        asked: dict[str, Any] = {}
        for kind, flag in _FLAGS.items():
            offered: object = session.capabilities.get(kind)
            if isinstance(offered, dict) and cast("dict[str, Any]", offered).get("listChanged") is True:
                asked[flag] = True
        if self._wanted:
            asked["resourceSubscriptions"] = sorted(self._wanted)
        return asked

    async def _ask(self, session: Session, method: str, params: dict[str, Any], seconds: float | None = None) -> None:
        try:
            with anyio.fail_after(seconds):
                await session.request(method, params)
        except (PeerError, NoAnswer, LinkLost, TimeoutError) as error:
            self._log.debug("upstream did not accept a subscription", method=method, cause=str(error)[:200])


async def _cancel_on(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


_PING_EVERY: Final = 15.0
LISTING_PAUSE: Final = 1.0
"""Seconds between two listings of one server, however often it says that something changed."""
_REST: Final = 20
"""The pause after a listing is at least this many times as long as applying it took, when everything else waits."""
_LONG_CALL: Final = 1.0
"""Seconds between two checks whether a server that is due to be stopped is still in use."""


class SessionKeeper(Protocol):
    """Decides what happens to a session."""

    def lose(self, member: SessionMember, cause: str, *, at_once: bool = False) -> None:
        """The session can't be used any more. `at_once`: the server is there, it has only forgotten the session."""
        ...

    def stop_idle(self, member: SessionMember) -> None:
        """Nobody has needed the session for a while."""
        ...


class Maintenance:
    """Tends the main sessions of one server, one after the other."""

    def __init__(
        self,
        config: UpstreamConfig,
        limits: LimitsConfig,
        follower: Follower,
        on_change: Callable[[Collection[ListKind]], None],
        is_busy: Callable[[], bool],
    ) -> None:
        """`on_change` is called with the lists that the server says have changed."""
        self._config = config
        self._limits = limits
        self._follower = follower
        self._on_change = on_change
        self._is_busy = is_busy
        self._log = get_logger("gateway.proxy").bind(server=config.name)
        self._changed = anyio.Event()
        self._changed_lists: set[ListKind] = set()
        self._suspected = anyio.Event()
        self._used = 0.0

    def used(self) -> None:
        """Note that somebody needs the server now."""
        self._used = asyncio.get_running_loop().time()

    def suspect(self) -> None:
        """Find out whether the server is alive, because a call got no answer."""
        self._suspected.set()

    def changed(self, kind: ListKind | None = None) -> None:
        """List again soon. `kind`: the list that the server says has changed."""
        if kind is not None:
            self._changed_lists.add(kind)
        self._changed.set()

    async def tend(self, member: SessionMember, keeper: SessionKeeper) -> None:
        """Run all background tasks until the session is over."""
        self.used()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._refresh, member)
            tasks.start_soon(self._watch, member, keeper)
            tasks.start_soon(self._follower.follow, member)
            if self._config.idle_stop:
                tasks.start_soon(self._stop_idle, member, keeper)
            await until_over(member)
            tasks.cancel_scope.cancel()

    async def _refresh(self, member: SessionMember) -> None:
        """List again whenever the server says that something changed; several notifications count as one.

        There is a pause after each listing, because a server may send a notification after every listing.
        """
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            kinds, self._changed_lists = self._changed_lists, set()
            took = 0.0
            try:
                with anyio.fail_after(self._limits.start_timeout):
                    await list_all(member)
            except (PeerError, NoAnswer, LinkLost, UpstreamUnavailable, TimeoutError) as error:
                self._log.warning("upstream could not be listed again", cause=describe_failure(error, self._config))
            else:
                began = monotonic()
                self._on_change(kinds)
                took = monotonic() - began
            await anyio.sleep(max(LISTING_PAUSE, _REST * took))

    async def _watch(self, member: SessionMember, keeper: SessionKeeper) -> None:
        """Ping the server after a call broke off or got no answer: it can hang with its pipes open.

        Over HTTP also every now and then, because nothing else shows there that it died; but not while it is busy,
        since our call may occupy its only thread.
        """
        idle = _PING_EVERY if self._config.command is None else math.inf
        while True:
            with anyio.move_on_after(idle) as nothing_happened:
                await self._suspected.wait()
            if nothing_happened.cancelled_caught and self._is_busy():
                continue
            self._suspected = anyio.Event()
            silence = await why_silent(member, PING_TIME)
            if isinstance(silence, TimeoutError):
                keeper.lose(member, "it did not answer a ping")
            elif silence is not None:
                cause = describe_failure(silence, self._config)
                keeper.lose(member, cause, at_once=isinstance(silence, SessionForgotten))

    async def _stop_idle(self, member: SessionMember, keeper: SessionKeeper) -> None:
        """End a server that nobody has needed for a while, neither for a call nor to watch a resource."""
        while True:
            left = self._used + self._config.idle_stop - anyio.current_time()
            if left <= 0 and not self._is_busy() and not self._follower.watches:
                keeper.stop_idle(member)
                return
            await anyio.sleep(left if left > 0 else min(self._config.idle_stop, _LONG_CALL))


async def list_all(member: SessionMember) -> None:
    """Have all lists fetched. Only a failure to list tools counts; other lists may fail, which is logged.

    Raises:
        UpstreamUnavailable, PeerError, NoAnswer: the server did not list its tools.
        LinkLost: the connection broke.
    """
    await member.listing.get("tools")
    for kind in KINDS[1:]:
        try:
            await member.listing.get(kind)
        except (PeerError, NoAnswer, UpstreamUnavailable) as error:
            get_logger("gateway.proxy").warning(
                "upstream did not list everything that it offers",
                server=member.session.server,
                kind=kind,
                cause=escape_text(str(error), 200),
            )
