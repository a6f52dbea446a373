"""What one server lists, as a certain caller sees it.

Turns a caller into the list of its own session, or of the main one, and a name into whether the server listed it for
that caller. A server may list more for a client that can be asked. Until there is a session on which the server was
told of this, the lists are known to be incomplete for such a caller; `learn` opens one. It knows no public names.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import anyio

from gateway.config.model import LimitsConfig, UpstreamConfig
from gateway.proxy.caller import Caller
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError
from gateway.proxy.upstream.dispatcher import Dispatcher
from gateway.proxy.upstream.failures import describe_failure
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.list_cache import EarlierRun
from gateway.proxy.upstream.supervision.listing import Kind, Listed, Listing
from gateway.proxy.upstream.supervision.members import Member
from gateway.proxy.upstream.supervision.selector import Selector
from gateway.proxy.upstream.supervision.supervisor import Supervisor

_STARTING: Final = 2.0
"""Seconds that a list waits for a server that is starting later on. Clients are told of the change when it is up."""
_RELISTING: Final = 3.0
"""Seconds to wait for a list that is already known from an earlier request."""


class ServerList(NamedTuple):
    """One list of one server, as a caller sees it."""

    listed: Listed
    modern: bool
    """Whether it is in the form of the modern era."""
    info: Mapping[str, Any]
    """The server's own words about itself."""


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
        earlier: Callable[[], EarlierRun | None],
        *,
        is_common: bool,
    ) -> None:
        """`on_change` is called if a list turns out to have changed although the server did not say so. `earlier`: what
        is known of an earlier run of the gateway, while that may be shown. `is_common`: whether the main session's
        lists are shown to all callers; else only one principal has them."""
        self._config = config
        self._limits = limits
        self._supervisor = supervisor
        self._selector = selector
        self._dispatcher = dispatcher
        self._given = given
        self._on_change = on_change
        self._earlier = earlier
        self._is_common = is_common
        self._first_start_until: float | None = None
        """When lists no longer wait for the first start; None until one has waited."""

    def at_hand(self, kind: Kind, caller: Caller) -> ServerList | None:
        """Like `get`, but without waiting; None: the server would have to be asked."""
        member = self._selector.aside(caller) or self._supervisor.main
        listed = None if member is None else self._selector.listing(member, caller).at_hand(kind)
        return None if member is None or listed is None else _of(listed, member)

    async def get(self, kind: Kind, caller: Caller) -> ServerList:
        """Return the list as `caller` would see it; at first that of an earlier run of the gateway, if it is known.

        Raises:
            UpstreamUnavailable: the server can't be asked.
        """
        last = self._supervisor.last
        if self._supervisor.asleep and last is not None and (kept := last.listing.known(kind)) is not None:
            # No need to wake the server for what it listed before it was put to sleep.
            return _of(kept, last)
        if (earlier := self._earlier()) is not None and kind in earlier.lists:
            return ServerList(earlier.lists[kind], earlier.modern, earlier.info)
        if self._supervisor.main is None:
            with anyio.move_on_after(self._start_wait()) as waiting:
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

    def _start_wait(self) -> float:
        """Seconds that a list waits for the server to start."""
        now, most = anyio.current_time(), self._limits.list_wait
        if self._first_start_until is None:
            self._first_start_until = now + most
        return max(self._first_start_until - now, min(_STARTING, most))

    async def learn(self, kinds: Sequence[Kind], caller: Caller) -> None:
        """Have the server list these for this caller, on a session on which it is told the caller's capabilities.

        Raises:
            UpstreamUnavailable: no such session can be opened now, or the server can't be asked.
        """
        async with self._selector.open_aside(caller):
            for kind in kinds:
                await self.get(kind, caller)

    def may_have_tool(self, name: str, caller: Caller) -> bool:
        """Whether the server lists this tool, or has not listed everything yet."""
        main = self._main()
        if main is None or main.may_hold_tool(name):
            return True
        aside = self._aside(caller)
        return aside is not None and aside.known("tools") is not None and aside.may_hold_tool(name)

    def holds(self, kind: Kind, name: str, caller: Caller) -> bool:
        """Whether this name is in the main list or in the caller's own."""
        main = self._main()
        return (main is not None and main.holds(kind, name)) or self.holds_aside(kind, name, caller)

    def holds_aside(self, kind: Kind, name: str, caller: Caller) -> bool:
        """Whether this name is in the caller's own list, which is not the main one."""
        aside = self._aside(caller)
        return aside is not None and aside.holds(kind, name)

    def tool_aside(self, name: str, caller: Caller) -> dict[str, Any] | None:
        """The definition of this tool in the caller's own list, which is not the main one; None: it is not there."""
        aside = self._aside(caller)
        return None if aside is None else aside.find("tools", name)

    def tool(self, name: str, caller: Caller) -> dict[str, Any] | None:
        """The definition of this tool in the caller's own list, else in the main one; None: neither has it."""
        main = self._main()
        return self.tool_aside(name, caller) or (None if main is None else main.find("tools", name))

    def knows_tool_aside(self, name: str, caller: Caller) -> bool:
        """Whether this tool is in the caller's own list, and that list is not known to have changed since."""
        aside = self._aside(caller)
        return aside is not None and not aside.is_open("tools") and aside.holds("tools", name)

    def holds_uri_aside(self, uri: str, caller: Caller) -> bool:
        """Whether this resource, or a template that it fits, is in the caller's own list."""
        lists = (self._aside(caller), None if self._is_common else self._main())
        return any(each is not None and each.holds_uri(uri) for each in lists)

    def giver(self, params: dict[str, Any], caller: Caller) -> Member | None:
        """The borrowed session whose answer gave this principal the resource in `params`, if it is still open."""
        uri = params.get("uri")
        giver = self._given.giver(uri, caller.principal) if isinstance(uri, str) else None
        return giver if giver is not None and self._selector.lends(giver) else None

    def only_aside(self, params: dict[str, Any], caller: Caller) -> bool:
        """Whether what the params of `prompts/get` or `resources/read` name is in the caller's own list and not in the
        main one."""
        main, name, uri = self._main(), params.get("name"), params.get("uri")
        if main is None or self._selector.aside(caller) is None:
            return False
        if isinstance(name, str):
            return not main.holds("prompts", name) and self.holds_aside("prompts", name, caller)
        return isinstance(uri, str) and not main.holds_uri(uri) and self.holds_uri_aside(uri, caller)

    def _aside(self, caller: Caller) -> Listing | None:
        """The caller's own lists, if they are not those that all callers have."""
        member = self._selector.aside(caller) or self._supervisor.last
        listing = None if member is None else self._selector.listing(member, caller)
        return None if self._is_common and listing is self._main() else listing

    def _main(self) -> Listing | None:
        return None if self._supervisor.last is None else self._supervisor.last.listing

    async def _list(self, kind: Kind, member: Member, caller: Caller) -> ServerList:
        """Raises UpstreamUnavailable, LinkLost."""
        listing = self._selector.listing(member, caller)
        known = listing.known(kind)
        seconds = self._limits.start_timeout if known is None else min(_RELISTING, self._limits.start_timeout)
        try:
            with anyio.fail_after(seconds):
                listed = await listing.get(kind)
            if known not in (None, listed) and listing is self._main() and not listing.tells(kind):
                # The change was not announced, so owners must be determined again.
                self._on_change()
            return _of(listed, member)
        except TimeoutError:
            self._selector.suspect(member)
            if known is not None:
                # A server that hangs must not hold up the lists of the others.
                return _of(known, member)
            raise self._dispatcher.unavailable(f"it did not list its {kind} in time") from None
        except (PeerError, NoAnswer) as error:
            raise self._dispatcher.unavailable(describe_failure(error, self._config)) from None


def _of(listed: Listed, member: Member) -> ServerList:
    return ServerList(listed, member.session.modern, member.session.info)
