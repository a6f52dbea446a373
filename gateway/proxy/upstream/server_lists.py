"""What one server lists: as a certain caller sees it, and as it was in an earlier run of the gateway."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import anyio
from platformdirs import user_cache_path

from gateway.config.gateway_config import LimitsConfig, UpstreamConfig
from gateway.config.state import replace_file
from gateway.observe.logs import get_logger
from gateway.proxy.caller import Caller
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError
from gateway.proxy.upstream.dispatcher import Dispatcher
from gateway.proxy.upstream.given_uris import GivenUris
from gateway.proxy.upstream.items.item_reader import ItemKind, ItemReader
from gateway.proxy.upstream.supervision.lifecycle import describe_failure
from gateway.proxy.upstream.supervision.listing import KINDS, Listed, Listing, Screen
from gateway.proxy.upstream.supervision.selector import Selector
from gateway.proxy.upstream.supervision.session_member import SessionMember
from gateway.proxy.upstream.supervision.supervisor import Supervisor

# The file is under a digest of the server's configuration: a server that is started in another way has none, even under
# the same name. A file that is damaged, too large or of another format counts as none.

_FORMAT: Final = 1
_LONGEST: Final = 4 * 1024 * 1024
"""Bytes kept of one server, at most: a thousand large tools. Of one that lists more nothing is kept."""
_MOST: Final = 256
"""Servers of which something is kept, at most; those that were not used for longest go first."""


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What a server told in an earlier run of the gateway: it may have changed, and nothing can be asked of it."""

    lists: Mapping[ItemKind, Listed]
    modern: bool
    """Whether it spoke the modern era."""
    info: Mapping[str, Any]
    instructions: str | None


class ListCache:
    """The folder of what is kept of all servers."""

    def __init__(self, folder: Path | None = None) -> None:
        """`folder`: None: `lists` in the user's cache."""
        self._folder = folder or user_cache_path("codec-gateway") / "lists"

    def file_of(self, config: UpstreamConfig) -> "ListFile":
        """The file of one server; it need not exist."""
        # Values of variables and headers are no part of it: a renewed password makes no other server.
        target = [config.command, *config.args] if config.command is not None else [config.url, config.manifest]
        given = [config.name, target, str(config.cwd), sorted(config.env), sorted(config.headers), config.protocol]
        return ListFile(self._folder / f"{sha256(json.dumps(given).encode()).hexdigest()}.json", config.name)


class ListFile:
    """What is kept of one server."""

    def __init__(self, path: Path, server: str) -> None:
        self._path = path
        self._log = get_logger("gateway.proxy").bind(server=server)
        self._kept = b""
        """What the file holds, as far as is known."""

    def read(self, reader: ItemReader, screen: Screen) -> EarlierRun | None:
        """What is kept. `reader` and `screen` as for `Listing`: what may not be shown now is left out."""
        try:
            if self._path.stat().st_size > _LONGEST:
                return None
            data = self._path.read_bytes()
            os.utime(self._path)
            found = _parse(json.loads(data), reader, screen)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            self._log.warning("what is kept of its lists can't be used", file=str(self._path), cause=str(error)[:200])
            return None
        self._kept = data
        return found

    def write(self, member: SessionMember) -> None:
        """Keep what this session has listed, unless it is kept already."""
        try:
            data = json.dumps(_fields_of(member)).encode()
            if data != self._kept:
                self._replace(data)
                self._kept = data
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._log.debug("its lists can't be kept", file=str(self._path), cause=str(error)[:200])

    def _replace(self, data: bytes) -> None:
        if len(data) > _LONGEST:
            self._path.unlink(missing_ok=True)
            return
        folder = self._path.parent
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self._path.exists():
            _make_room(folder)
        replace_file(self._path, data)


def _fields_of(member: SessionMember) -> dict[str, Any]:
    listing, session = member.listing, member.session
    known = {kind: listing.at_hand(kind) or listing.known(kind) for kind in KINDS}
    lists = {kind: [each.items, each.around] for kind, each in known.items() if each is not None}
    told = {"modern": session.modern, "info": session.info, "instructions": session.instructions}
    return {"format": _FORMAT, **told, "lists": lists}


def _parse(value: Any, reader: ItemReader, screen: Screen) -> EarlierRun:
    """Raises anything that a damaged value causes."""
    if value["format"] != _FORMAT:
        raise ValueError("it has the format of another version")
    modern, info, words = bool(value["modern"]), dict(value["info"]), value["instructions"]
    lists: dict[ItemKind, Listed] = {}
    for kind in KINDS:
        if kind in value["lists"]:
            items, around = value["lists"][kind]
            read = reader.read(kind, list(cast("list[object]", items)), modern=modern)
            lists[kind] = Listed(screen(read) if kind == "tools" else tuple(read), dict(around))
    return EarlierRun(lists, modern, info, words if isinstance(words, str) else None)


def _make_room(folder: Path) -> None:
    files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in files[_MOST - 1 :]:
        with suppress(OSError):
            path.unlink()


# A server may list more for a client that can be asked. Until there is a session on which the server was told of this,
# the lists are known to be incomplete for such a caller; `learn` opens one.

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

    def at_hand(self, kind: ItemKind, caller: Caller) -> ServerList | None:
        """Like `get`, but without waiting; None: the server would have to be asked."""
        member = self._selector.aside(caller) or self._supervisor.main
        listed = None if member is None else self._selector.listing(member, caller).at_hand(kind)
        return None if member is None or listed is None else _of(listed, member)

    async def get(self, kind: ItemKind, caller: Caller) -> ServerList:
        """Return the list as `caller` would see it; at first that of an earlier run of the gateway, if it is known.
        Raises `UpstreamUnavailable`: the server can't be asked."""
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

    async def learn(self, kinds: Sequence[ItemKind], caller: Caller) -> None:
        """Have the server list these for this caller, on a session on which it is told the caller's capabilities.
        Raises `UpstreamUnavailable`: no such session can be opened now, or the server can't be asked."""
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

    def holds(self, kind: ItemKind, name: str, caller: Caller) -> bool:
        """Whether this name is in the main list or in the caller's own."""
        main = self._main()
        return (main is not None and main.holds(kind, name)) or self.holds_aside(kind, name, caller)

    def holds_aside(self, kind: ItemKind, name: str, caller: Caller) -> bool:
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

    def giver(self, params: dict[str, Any], caller: Caller) -> SessionMember | None:
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

    async def _list(self, kind: ItemKind, member: SessionMember, caller: Caller) -> ServerList:
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


def _of(listed: Listed, member: SessionMember) -> ServerList:
    return ServerList(listed, member.session.modern, member.session.info)
