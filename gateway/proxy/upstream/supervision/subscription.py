"""Keeps one server's main session subscribed to what somebody watches.

In the modern era this is one `subscriptions/listen` stream, opened again whenever the set of resources changes or the
stream ends; in the handshake era it is a `resources/subscribe` for each resource, repeated on a new session. It
delivers nothing itself: notifications arrive through `session/session.py`. `maintenance.py` runs it, `change_feed.py`
says what to watch.
"""

from collections import Counter
from typing import Any, Final, cast

import anyio

from gateway.observe.logs import get_logger
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError
from gateway.proxy.upstream.session.session import Session
from gateway.proxy.upstream.supervision.members import Member

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
        """Start with nothing to watch."""
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

    async def follow(self, member: Member) -> None:
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
