"""One MCP server behind the gateway, as the rest of the proxy sees it.

Combines what belongs to one server (supervision, sessions, lists, the dispatcher for requests), and passes on what its
sessions report. It knows no other servers and no public names.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.errors import UpstreamUnavailable
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.dispatcher import Dispatcher, Gate, Users
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.items.item_reader import ItemKind, ItemReader, ToolHeaders
from gateway.proxy.upstream.items.tool_pins import Pins
from gateway.proxy.upstream.server_lists import CallerLists, EarlierRun, ListCache
from gateway.proxy.upstream.session.session import ListKind
from gateway.proxy.upstream.supervision.listing import Listed
from gateway.proxy.upstream.supervision.maintenance import Follower
from gateway.proxy.upstream.supervision.selector import Selector
from gateway.proxy.upstream.supervision.session_member import Connect, Opener, SessionMember
from gateway.proxy.upstream.supervision.supervisor import Supervisor


class ChangeListener(Protocol):
    """Receives reports of changes."""

    def upstream_changed(
        self, server: str, kind: ListKind | None, session: ClientSession | None, owner: str | None = None
    ) -> None:
        """A list has changed (`kind` None: the server came or went). `session`: only for this client; None: for all.
        `owner`: only for principals with this `owner`; None: for all."""
        ...

    def resource_updated(self, server: str, uri: str) -> None:
        """A resource that the main session watches has changed."""
        ...

    def own_resource_updated(self, server: str, params: Mapping[str, Any], session: ClientSession) -> None:
        """A resource that a client watches on its own session has changed."""
        ...


class OwnUpstreams(Protocol):
    """The upstreams of the principals that have signed in for themselves (`proxy/per_user.py`)."""

    def of(self, principal: Principal) -> "Upstream | None":
        """The principal's own upstream; None: it has none."""
        ...

    async def look_up(self, principal: Principal) -> "Upstream | None":
        """The same, after asking whether the principal has signed in at another replica."""
        ...

    def open(self, owner: str) -> "Upstream | None":
        """The same by the principal's `owner`."""
        ...

    def why_none(self, principal: Principal) -> UpstreamUnavailable:
        """Why it has none."""
        ...

    def all(self) -> "Sequence[Upstream]":
        """Those that are open."""
        ...

    def stop(self) -> None:
        """Begin to end all of them, and open none again."""
        ...

    async def sweep(self) -> None:
        """Keep ending those that nobody needs any more, until cancelled."""
        ...


class Upstream:
    """One server, or what one principal has there."""

    def __init__(
        self,
        config: UpstreamConfig,
        limits: LimitsConfig,
        metrics: Metrics,
        connect: Connect,
        listener: ChangeListener,
        share_rule: ShareRule,
        list_cache: ListCache | None,
        common: "Upstream | None" = None,
    ) -> None:
        """Starts nothing before `run`.

        Args:
            common: the upstream of the same server that is everybody's, where this one is a single principal's.
            share_rule: how much of the server's bounds one principal may use.
            list_cache: what servers listed in earlier runs of the gateway; None: it is neither read nor written.
        """
        self.config = config
        self.per_user: OwnUpstreams | None = None
        """The principals' own upstreams; None: they share this one."""
        self._gate = gate = Gate(config.concurrency, config.queue) if common is None else common._gate
        self._limits = limits
        self._metrics = metrics
        self._listener = listener
        self.pins = Pins(config, metrics.pin_broken)
        self.tool_headers = ToolHeaders(config)
        self.reader = ItemReader(config.name)
        opener = Opener(
            config,
            connect,
            metrics.notification_dropped,
            self,
            self.reader,
            self._screen,
            result_bytes=limits.result_bytes,
            time=limits.start_timeout,
        )
        self.follower = Follower(config.name)
        self.supervisor = Supervisor(
            config,
            limits,
            metrics,
            opener,
            self.follower,
            on_change=self._changed,
            is_busy=lambda: gate.inside > 0,
            on_stop_idle=self._stopped_idle,
            is_common=common is None,
        )
        self.used = Users()
        """Entered by everybody who still needs the server, even between two requests."""
        self.selector = Selector(config, self.supervisor, opener, share_rule)
        self.given = GivenUris()
        rest = (self.supervisor, self.selector, gate, share_rule, self.given)
        self.dispatcher = Dispatcher(config, limits, metrics.servers, *rest)
        self.lists = CallerLists(
            *(config, limits, self.supervisor, self.selector, self.dispatcher, self.given),
            on_change=lambda: self._changed(()),
            earlier=lambda: self.earlier,
            is_common=common is None,
        )
        self._list_file = None if list_cache is None else list_cache.file_of(config)
        self._earlier = None if self._list_file is None else self._list_file.read(self.reader, self._screen)

    def separate(self, own: OwnUpstreams) -> None:
        """Have each principal use an upstream of its own. Call it before `run`."""
        self.per_user = own

    def serves(self, principal: Principal) -> bool:
        """Whether requests on the principal's behalf may be sent here; if not, it needs an upstream of its own."""
        return self.per_user is None or principal.alone

    @property
    def up(self) -> bool:
        """Whether a call could be sent at once."""
        return self.supervisor.main is not None

    @property
    def available(self) -> bool:
        """Whether its tools can be offered: it is up, or sleeps until it is called."""
        return self.up or (self.supervisor.asleep and self.supervisor.last is not None) or self.earlier is not None

    @property
    def earlier(self) -> EarlierRun | None:
        """What it told in an earlier run of the gateway; None: nothing is known, or it has come up or failed since."""
        if self._earlier is None or self.supervisor.last is not None:
            return None
        return self._earlier if self.supervisor.lifecycle.state in ("idle", "starting") else None

    @property
    def instructions(self) -> str | None:
        """Its instructions on how to use it."""
        last, earlier = self.supervisor.last, self.earlier
        if last is not None:
            return last.session.instructions
        return None if earlier is None else earlier.instructions

    @property
    def was_up(self) -> bool:
        """Whether it has ever been up."""
        return self.supervisor.last is not None

    @property
    def invalid_tools(self) -> Mapping[str, str]:
        """Its tools that are not offered because of how they are defined, by their own names, and why."""
        return {**self.reader.why_left_out("tools"), **self.tool_headers.invalid}

    @property
    def offers(self) -> Mapping[str, Any]:
        """Its capabilities, from the last time it was up; empty if it never was."""
        last = self.supervisor.last
        return {} if last is None else last.session.capabilities

    async def run(self) -> None:
        """Keep the server started until `stop`."""
        async with anyio.create_task_group() as tasks:
            self.selector.begin(tasks)
            if self.per_user is not None:
                tasks.start_soon(self.per_user.sweep)
            await self.supervisor.run()
            self.selector.close()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Ask `run` to end all of the server's sessions and return; so with those of its users."""
        if self.per_user is not None:
            self.per_user.stop()
        self.supervisor.stop()
        self.selector.close()

    async def ended(self) -> None:
        """Wait until nothing of the server is left."""
        for each in (*self._own(), self):
            await each.supervisor.ended.wait()

    def _own(self) -> "Sequence[Upstream]":
        return () if self.per_user is None else self.per_user.all()

    async def unused(self) -> None:
        """Wait until nobody uses the server, before it is stopped. The caller must keep new users away."""
        for each in (*self._own(), self):
            await each.used.over()

    def list_again(self) -> None:
        """List its tools again, because what may be shown of them has changed."""
        for each in self._own():
            each.list_again()
        self.supervisor.list_again()
        for member in self.selector.members():
            member.forget("tools")
            if member.session.owner is not None:
                self._listener.upstream_changed(self.config.name, "tools", member.session.owner)

    def known(self, kind: ItemKind) -> Listed | None:
        """What the main session last listed, even if the server is away; at first, what an earlier run knew."""
        last, earlier = self.supervisor.last, self.earlier
        if last is not None:
            return last.listing.known(kind)
        return None if earlier is None else earlier.lists.get(kind)

    def count(self, kind: ItemKind) -> int:
        """How many it lists now; 0 while it is not up."""
        listed = self.known(kind)
        return len(listed.items) if self.up and listed is not None else 0

    @asynccontextmanager
    async def lease(self, caller: Caller, params: dict[str, Any]) -> AsyncGenerator[SessionMember, None]:
        """Borrow a handshake-era session for this caller's exclusive use, as `runs_aside` demands. Raises
        `UpstreamUnavailable`: it can't be opened."""
        with self.used:
            async with self.selector.lease(caller, self.lists.giver(params, caller)) as member:
                yield member

    async def runs_aside(self, method: str, params: dict[str, Any], caller: Caller) -> bool:
        """Whether a modern caller's request needs a session besides the main one: the caller may be asked, or only such
        a session knows what the request names. Raises as `Selector.for_call` does.
        """
        if method == "tools/call":
            return await self.selector.bridges(caller)
        return self.lists.giver(params, caller) is not None or self.lists.only_aside(params, caller)

    async def learn(self, kinds: Sequence[ItemKind], caller: Caller) -> None:
        """See `CallerLists.learn`. The server is not stopped meanwhile."""
        with self.used:
            await self.lists.learn(kinds, caller)

    def has_task(self, task_id: object, caller: Caller) -> bool:
        """Whether this caller made the task on this server."""
        own = None if caller.session is None else self.selector.own(caller.session)
        member = own or self.supervisor.last
        return member is not None and member.session.tasks.owns(task_id, caller.principal)

    def sessions(self) -> int:
        """How many sessions are open."""
        return len(self.selector) + sum(each.sessions() for each in self._own())

    def release(self, session: ClientSession) -> None:
        """End the sessions of a client that has disconnected."""
        for each in (*self._own(), self):
            each.selector.release(session)

    def _stopped_idle(self) -> None:
        # The other sessions are as idle as the main one: nothing is stopped while a call runs.
        self.selector.close()

    def _changed(self, kinds: Collection[ListKind]) -> None:
        if self._list_file is not None and self.supervisor.main is not None:
            self._list_file.write(self.supervisor.main)
        for kind in kinds or (None,):
            self._listener.upstream_changed(self.config.name, kind, None)

    def list_changed(self, kind: ListKind, member: SessionMember) -> None:
        """Take note that a session reported a changed list (`Changes`)."""
        if member.session.owner is None or member.session.owner is self.supervisor.adopted:
            self.supervisor.changed(kind)
        else:
            self._listener.upstream_changed(self.config.name, kind, member.session.owner)

    def listening(self, member: SessionMember) -> None:
        """Take note that the server of a session reports changes from now on (`Changes`)."""
        if member is self.supervisor.main:
            self.supervisor.list_in_doubt()

    def updated(self, params: Mapping[str, Any], member: SessionMember) -> None:
        """Take note that a session reported a changed resource (`Changes`)."""
        if member.session.owner is not None:
            self._listener.own_resource_updated(self.config.name, params, member.session.owner)
        elif isinstance(uri := params.get("uri"), str):
            self._listener.resource_updated(self.config.name, uri)

    def _screen(self, definitions: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """The tools that may be shown. A tool that is not offered for its headers is not pinned either."""
        return self.pins.screen(self.tool_headers.screen(definitions))
