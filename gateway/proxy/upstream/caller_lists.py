"""What one server lists, as one caller sees it.

Turns a caller into the list of the session that stands for it, or of the main one, and a name into whether the server
listed it to that caller. A server may list more to a client that can be asked: until a session exists on which it was
told so, the lists are known to be incomplete for such a caller, and `learn` opens one. It gives out no public names.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.proxy.caller import Caller
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError
from gateway.proxy.upstream.dispatcher import Dispatcher
from gateway.proxy.upstream.failures import describe_failure
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.listing import Kind, Listed, Listing
from gateway.proxy.upstream.members import Member
from gateway.proxy.upstream.selector import Selector
from gateway.proxy.upstream.supervisor import Supervisor

_STARTING: Final = 2.0
"""Seconds that a list waits for a server that starts. Clients hear of the change when it is up."""
_RELISTING: Final = 3.0
"""Seconds to wait for a list that is known already, from when it was last asked for."""


class CallerLists:
    """The lists of one server."""

    def __init__(
        self,
        config: UpstreamConfig,
        limits: LimitsConfig,
        supervisor: Supervisor,
        selector: Selector,
        dispatcher: Dispatcher,
        given: GivenUris,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called where a list turns out to be another one, and nobody had said so."""
        self._config = config
        self._limits = limits
        self._supervisor = supervisor
        self._selector = selector
        self._dispatcher = dispatcher
        self._given = given
        self._on_change = on_change

    def at_hand(self, kind: Kind, caller: Caller) -> tuple[Listed, Member] | None:
        """As `get`, as far as nobody need be waited for."""
        member = self._selector.aside(caller) or self._supervisor.main
        listed = None if member is None else self._selector.listing(member, caller).at_hand(kind)
        return None if member is None or listed is None else (listed, member)

    async def get(self, kind: Kind, caller: Caller) -> tuple[Listed, Member]:
        """The list as `caller` would see it, and the session that gave it.

        Raises:
            UpstreamUnavailable: it can't be asked.
        """
        last = self._supervisor.last
        if self._supervisor.asleep and last is not None and (kept := last.listing.known(kind)) is not None:
            # Nobody needs the server for what it said before it was put to sleep.
            return kept, last
        if self._supervisor.main is None:
            with anyio.move_on_after(_STARTING) as waiting:
                await self._supervisor.want()
            if waiting.cancelled_caught:
                raise self._dispatcher.unavailable(self._supervisor.why_away())
        member = await self._selector.for_lists(caller)
        try:
            return await self._list(kind, member, caller)
        except LinkLost as error:
            self._dispatcher.give_up(member, error)
            if error.sent:
                raise self._dispatcher.unavailable(describe_failure(error, self._config)) from None
        member = await self._selector.for_lists(caller)
        try:
            return await self._list(kind, member, caller)
        except LinkLost as error:
            raise self._dispatcher.unavailable(describe_failure(error, self._config)) from None

    async def learn(self, kinds: Sequence[Kind], caller: Caller) -> None:
        """Have the server list these to this caller, on a session on which it is told what the caller announced.

        Raises:
            UpstreamUnavailable: there can be no such session now, or it can't be asked.
        """
        async with self._selector.open_aside(caller):
            for kind in kinds:
                await self.get(kind, caller)

    def may_have_tool(self, name: str, caller: Caller) -> bool:
        """Whether the server listed this tool of its own, or did not say yet all that it has."""
        main = self._main()
        if main is None or main.may_hold_tool(name):
            return True
        aside = self._aside(caller)
        return aside is not None and aside.known("tools") is not None and aside.may_hold_tool(name)

    def holds(self, kind: Kind, name: str, caller: Caller) -> bool:
        """Whether this name stands in the list that is for all, or in the caller's."""
        main = self._main()
        return (main is not None and main.holds(kind, name)) or self.holds_aside(kind, name, caller)

    def holds_aside(self, kind: Kind, name: str, caller: Caller) -> bool:
        """Whether the server listed this to this caller besides what it lists to all."""
        aside = self._aside(caller)
        return aside is not None and aside.holds(kind, name)

    def knows_tool_aside(self, name: str, caller: Caller) -> bool:
        """The same of a tool, and nothing is known to have changed since."""
        aside = self._aside(caller)
        return aside is not None and not aside.is_open("tools") and aside.holds("tools", name)

    def holds_uri_aside(self, uri: str, caller: Caller) -> bool:
        """The same of a resource, or of a template that it fits."""
        aside = self._aside(caller)
        return aside is not None and aside.holds_uri(uri)

    def giver(self, params: dict[str, Any], caller: Caller) -> Member | None:
        """The borrowed session whose answer gave this principal the resource that `params` name, if it is there."""
        uri = params.get("uri")
        giver = self._given.giver(uri, caller.principal) if isinstance(uri, str) else None
        return giver if giver is not None and self._selector.lends(giver) else None

    def only_aside(self, params: dict[str, Any], caller: Caller) -> bool:
        """Whether what the params of `prompts/get` or `resources/read` name is listed by another session only than the
        main one."""
        main, name, uri = self._main(), params.get("name"), params.get("uri")
        if main is None or self._selector.aside(caller) is None:
            return False
        if isinstance(name, str):
            return not main.holds("prompts", name) and self.holds_aside("prompts", name, caller)
        return isinstance(uri, str) and not main.holds_uri(uri) and self.holds_uri_aside(uri, caller)

    def _aside(self, caller: Caller) -> Listing | None:
        """The lists besides the main ones that are this caller's."""
        member = self._selector.aside(caller) or self._supervisor.last
        listing = None if member is None else self._selector.listing(member, caller)
        return None if listing is None or listing is self._main() else listing

    def _main(self) -> Listing | None:
        return None if self._supervisor.last is None else self._supervisor.last.listing

    async def _list(self, kind: Kind, member: Member, caller: Caller) -> tuple[Listed, Member]:
        """Raises UpstreamUnavailable, LinkLost."""
        listing = self._selector.listing(member, caller)
        known = listing.known(kind)
        seconds = self._limits.start_timeout if known is None else min(_RELISTING, self._limits.start_timeout)
        try:
            with anyio.fail_after(seconds):
                listed = await listing.get(kind)
            if known not in (None, listed) and listing is self._main() and not listing.tells(kind):
                # This is the first to hear of a change: who owns what is to be found anew.
                self._on_change()
            return listed, member
        except TimeoutError:
            self._selector.suspect(member)
            if known is not None:
                # One that hangs must not hold up the lists of all others.
                return known, member
            raise self._dispatcher.unavailable(f"it did not list its {kind} in time") from None
        except (PeerError, NoAnswer) as error:
            raise self._dispatcher.unavailable(describe_failure(error, self._config)) from None
