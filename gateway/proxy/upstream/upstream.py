"""One MCP server behind us, as the rest of the proxy sees it.

Joins what one server needs: its life, its sessions, its lists, the dispatcher for requests; and takes in what its
sessions tell. It does not know other servers or public names.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.caller_lists import CallerLists
from gateway.proxy.upstream.concurrency import Gate, Users
from gateway.proxy.upstream.dispatcher import Dispatcher
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.listing import Kind, Listed
from gateway.proxy.upstream.members import Connect, Member, Opener
from gateway.proxy.upstream.pins import Pins
from gateway.proxy.upstream.sampling import Allowance, Sampler
from gateway.proxy.upstream.selector import Selector
from gateway.proxy.upstream.session import ListKind
from gateway.proxy.upstream.subscription import Follower
from gateway.proxy.upstream.supervisor import Supervisor
from gateway.proxy.upstream.tool_headers import ToolHeaders


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
        self,
        config: UpstreamConfig,
        limits: LimitsConfig,
        metrics: Metrics,
        connect: Connect,
        listener: Listener,
        share_rule: ShareRule,
        sampler: Sampler | None,
    ) -> None:
        """Nothing starts before `run`.

        Args:
            share_rule: how much of the server's bounds may be one principal's.
            sampler: generates for the server, if the operator lets it sample.
        """
        self.config = config
        gate = Gate(config.concurrency, config.queue)
        self._limits = limits
        self._metrics = metrics
        self._listener = listener
        self.pins = Pins(config, metrics.pin_broken)
        self.tool_headers = ToolHeaders(config)
        opener = Opener(
            config,
            connect,
            metrics.notification_dropped,
            self,
            self._screen,
            result_bytes=limits.result_bytes,
            time=limits.start_timeout,
        )
        self.allowance = Allowance(config.name, config.sampling_tokens, share_rule, sampler)
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
        )
        self.used = Users()
        """While this is entered somebody is not through with the server, though no request of theirs need run."""
        self.selector = Selector(config, self.supervisor, opener, self.allowance, share_rule)
        self.given = GivenUris()
        rest = (self.supervisor, self.selector, self.allowance, gate, share_rule, self.given)
        self.dispatcher = Dispatcher(config, limits, metrics.servers, *rest)
        self.lists = CallerLists(
            config, limits, self.supervisor, self.selector, self.dispatcher, self.given, lambda: self._changed(())
        )

    @property
    def up(self) -> bool:
        """Whether a call would go through at once."""
        return self.supervisor.main is not None

    @property
    def there(self) -> bool:
        """Whether what it offers can be had: it is up, or would be for whoever asks."""
        return self.up or (self.supervisor.asleep and self.supervisor.last is not None)

    @property
    def met(self) -> bool:
        """Whether it was ever up."""
        return self.supervisor.last is not None

    @property
    def offers(self) -> Mapping[str, Any]:
        """Its capabilities, from when it was last up."""
        last = self.supervisor.last
        return {} if last is None else last.session.capabilities

    async def run(self) -> None:
        """Keep the server started until `stop`."""
        async with anyio.create_task_group() as tasks:
            self.selector.begin(tasks)
            await self.supervisor.run()
            self.selector.close()
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Ask `run` to end everything of the server and return."""
        self.supervisor.stop()
        self.selector.close()

    async def unused(self) -> None:
        """Wait until nobody uses it. For one that is to be stopped: new users are its owner's to keep out."""
        await self.used.over()

    def list_again(self) -> None:
        """What may be shown of its tools changed, whatever it lists."""
        self.supervisor.list_again()
        for member in self.selector.members():
            member.forget("tools")
            if member.session.owner is not None:
                self._listener.upstream_changed(self.config.name, "tools", member.session.owner)

    def known(self, kind: Kind) -> Listed | None:
        """What the main session last listed, even if the server is away."""
        last = self.supervisor.last
        return None if last is None else last.listing.known(kind)

    def count(self, kind: Kind) -> int:
        """How many it lists now; none while it is not up."""
        listed = self.known(kind)
        return len(listed.items) if self.up and listed is not None else 0

    @asynccontextmanager
    async def lease(self, caller: Caller, params: dict[str, Any]) -> AsyncGenerator[Member, None]:
        """A session of the handshake era for this caller alone, to `request` on (see `runs_aside`).

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        with self.used:
            async with self.selector.lease(caller, self.lists.giver(params, caller)) as member:
                yield member

    async def runs_aside(self, method: str, params: dict[str, Any], caller: Caller) -> bool:
        """Whether a modern caller's request needs a session besides the main one: the caller may be asked, or only that
        one knows what the request names. Raises as `Selector.for_call`.
        """
        if method == "tools/call":
            return await self.selector.bridges(caller)
        return self.lists.giver(params, caller) is not None or self.lists.only_aside(params, caller)

    async def learn(self, kinds: Sequence[Kind], caller: Caller) -> None:
        """As `CallerLists.learn`, while nobody stops the server."""
        with self.used:
            await self.lists.learn(kinds, caller)

    def has_task(self, task_id: object, caller: Caller) -> bool:
        """Whether this caller made the task here."""
        own = None if caller.session is None else self.selector.own(caller.session)
        member = own or self.supervisor.last
        return member is not None and member.session.tasks.owns(task_id, caller.principal)

    def sampling_caller(self, caller: Caller) -> Caller:
        """The caller, with our engine to sample in its stead where it can't and the operator lets it."""
        return self.allowance.help(caller)

    def sessions(self) -> int:
        """How many sessions are open."""
        return len(self.selector)

    def _stopped_idle(self) -> None:
        # Their processes are as idle as the main one's: while a call runs nothing is stopped.
        self.selector.close()

    def _changed(self, kinds: Collection[ListKind]) -> None:
        for kind in kinds or (None,):
            self._listener.upstream_changed(self.config.name, kind, None)

    def list_changed(self, kind: ListKind, member: Member) -> None:
        """A session says that a list changed (`Changes`)."""
        if member.session.owner is None or member.session.owner is self.supervisor.adopted:
            self.supervisor.changed(kind)
        else:
            self._listener.upstream_changed(self.config.name, kind, member.session.owner)

    def listening(self, member: Member) -> None:
        """A session's server tells of changes from now on (`Changes`)."""
        if member is self.supervisor.main:
            self.supervisor.list_in_doubt()

    def updated(self, uri: str, member: Member) -> None:
        """A session says that a resource changed (`Changes`)."""
        if member.session.owner is None:
            self._listener.resource_updated(self.config.name, uri)

    def _screen(self, definitions: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
        """The tools that may be shown. One that can't be called is not pinned either."""
        return self.pins.screen(self.tool_headers.screen(definitions))

    async def sample(self, params: dict[str, Any], payer: Principal) -> dict[str, Any]:
        """A session asks for a generation that no client can be asked for (`Changes`)."""
        return await self.allowance.spend(params, payer)
