"""One MCP server behind us, as the rest of the proxy sees it.

Joins what one server needs: its life, its sessions, its lists, the dispatcher for requests; and takes in what its
sessions tell. It does not know other servers or public names.
"""

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

import anyio

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError
from gateway.proxy.upstream.concurrency import Gate, Users
from gateway.proxy.upstream.dispatcher import Dispatcher
from gateway.proxy.upstream.failures import describe_failure
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.listing import Kind, Listed
from gateway.proxy.upstream.members import Connect, Member, Opener
from gateway.proxy.upstream.pins import Pins
from gateway.proxy.upstream.sampling import Allowance
from gateway.proxy.upstream.selector import Selector
from gateway.proxy.upstream.session import ListKind
from gateway.proxy.upstream.subscription import Follower
from gateway.proxy.upstream.supervisor import Supervisor
from gateway.proxy.upstream.tool_headers import ToolHeaders
from gateway.proxy.uris import fits

_STARTING: Final = 2.0
"""Seconds that a list waits for a server that starts. Clients hear of the change when it is up."""
_RELISTING: Final = 3.0
"""Seconds to wait for a list that is known already, from when it was last asked for."""


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
    ) -> None:
        """Nothing starts before `run`. `share_rule`: how much of the server's bounds may be one principal's."""
        self.config = config
        gate = Gate(config.concurrency, config.queue)
        self._limits = limits
        self._metrics = metrics
        self._listener = listener
        self.pins = Pins(config, metrics)
        self.tool_headers = ToolHeaders(config)
        opener = Opener(
            config, connect, metrics, self, self._screen, result_bytes=limits.result_bytes, time=limits.start_timeout
        )
        self.allowance = Allowance(config.name, config.sampling_tokens, share_rule)
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
        self.dispatcher = Dispatcher(config, limits, metrics, *rest)

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
        if not self.up:
            with anyio.move_on_after(_STARTING) as waiting:
                await self.supervisor.want()
            if waiting.cancelled_caught:
                raise self.dispatcher.unavailable(self.supervisor.why_away())
        member = await self.selector.for_lists(caller)
        try:
            return await self._list(kind, member)
        except LinkLost as error:
            self.dispatcher.give_up(member, error)
            if error.sent:
                raise self.dispatcher.unavailable(describe_failure(error, self.config)) from None
        member = await self.selector.for_lists(caller)
        try:
            return await self._list(kind, member)
        except LinkLost as error:
            raise self.dispatcher.unavailable(describe_failure(error, self.config)) from None

    @asynccontextmanager
    async def lease(self, caller: Caller) -> AsyncGenerator[Member, None]:
        """A session of the handshake era for this caller alone, to `request` on (see `Selector.bridges`).

        Raises:
            UpstreamUnavailable: it can't be opened.
        """
        with self.used:
            async with self.selector.lease(caller) as member:
                yield member

    def may_have_tool(self, name: str, caller: Caller) -> bool:
        """Whether it listed this tool of its own, or did not say yet all that it has."""
        last = self.supervisor.last
        if last is None or last.listing.may_hold_tool(name):
            return True
        aside = self.selector.aside(caller)
        return aside is not None and aside.listing.known("tools") is not None and aside.listing.may_hold_tool(name)

    def lists_uri(self, uri: str, caller: Caller) -> bool:
        """Whether the session besides the main one listed this resource, or a template that it fits, to this caller."""
        aside = self.selector.aside(caller)
        if aside is None:
            return False
        resources, templates = aside.listing.known("resources"), aside.listing.known("templates")
        return any(each["uri"] == uri for each in (resources.items if resources else ())) or any(
            fits(each["uriTemplate"], uri) for each in (templates.items if templates else ())
        )

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

    async def _list(self, kind: Kind, member: Member) -> tuple[Listed, Member]:
        """Raises UpstreamUnavailable, LinkLost."""
        known = member.listing.known(kind)
        seconds = self._limits.start_timeout if known is None else min(_RELISTING, self._limits.start_timeout)
        try:
            with anyio.fail_after(seconds):
                listed = await member.listing.get(kind)
            if known not in (None, listed) and member is self.supervisor.last and not member.listing.tells(kind):
                # This is the first to hear of a change: who owns what is to be found anew.
                self._changed(())
            return listed, member
        except TimeoutError:
            self.selector.suspect(member)
            if known is not None:
                # One that hangs must not hold up the lists of all others.
                return known, member
            raise self.dispatcher.unavailable(f"it did not list its {kind} in time") from None
        except (PeerError, NoAnswer) as error:
            raise self.dispatcher.unavailable(describe_failure(error, self.config)) from None
