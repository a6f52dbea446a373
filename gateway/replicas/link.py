"""The connections between replicas: the greeting of both sides, then records; kept while they are idle."""

import asyncio
import errno
import socket
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final, Literal, cast
from weakref import WeakValueDictionary

import anyio

from gateway.errors import OwnerGone, ReplicaBusy
from gateway.observe.logs import get_logger
from gateway.replicas.replica_interface import Replica
from gateway.replicas.sealed_records import FULL, HELLO_BYTES, Hello, NoRoom, RecordFault, Records, ReplicaKeys

# If one side is too fast, data waits in the kernel, or the sender waits.

_HELD: Final = 512 * 1024
"""Bytes of received records that may wait to be taken; over that, reading pauses."""
_PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Seconds of silence, seconds between two probes, and how many may go unanswered. Not every system has all options."""


class Link(asyncio.Protocol):
    """A connection to another replica, for one request at a time. The other side is unproven until a record comes."""

    def __init__(
        self, keys: ReplicaKeys, side: Literal["asks", "answers"], met: Callable[["Link"], object] | None = None
    ) -> None:
        """`met`: called once the link is connected."""
        self._keys = keys
        self._side: Literal["asks", "answers"] = side
        self._met = met
        self._loop = asyncio.get_running_loop()
        self._out: asyncio.Transport
        self._mine = Hello.new(keys.current[0])
        self._hello = bytearray()
        self._records: Records | None = None
        self._waiting: deque[tuple[bytes, bytes]] = deque()
        self._held = 0
        self._some = asyncio.Event()
        """Set when something has arrived, or the connection has ended."""
        self._writable = asyncio.Event()
        self._writable.set()
        self._end: Exception | Literal[False] | None = False
        """The error that ended it; None: the other side closed it; False: it has not ended."""
        self.heard_at = self._loop.time()

    @staticmethod
    async def connect(host: str, port: int, keys: ReplicaKeys) -> "Link":
        """Connect to another replica and greet it. Raises `RecordFault`; OSError or EOFError if the connection ends."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(lambda: Link(keys, "asks"), host, port)
        try:
            await link.greeted()
        except BaseException:
            link.close()
            raise
        return link

    async def greeted(self) -> None:
        """Wait for the other side's greeting. Raises like `connect`."""
        while self._records is None:
            if self._end is not False:
                raise self._end or EOFError("it closed the connection before it had sent its greeting")
            await self._something()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is established."""
        self._out = cast("asyncio.Transport", transport)
        _look_after(transport.get_extra_info("socket"))
        if self._side == "asks":
            self._out.write(self._mine.bytes)
        if self._met is not None:
            self._met(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self.heard_at = self._loop.time()
        if self._end is not False:
            return
        try:
            self._take(data)
        except RecordFault as fault:
            self._out.pause_reading()
            self._over(fault)

    def _take(self, data: bytes) -> None:
        if self._records is None:
            self._hello += data
            if len(self._hello) < HELLO_BYTES:
                return
            data = bytes(self._hello[HELLO_BYTES:])
            self._records = self._greet(bytes(self._hello[:HELLO_BYTES]))
            self._some.set()
        for record in self._records.feed(data):
            self._waiting.append(record)
            self._held += len(record[1])
        if self._waiting:
            self._some.set()
        if self._held > _HELD:
            self._out.pause_reading()

    def _greet(self, said: bytes) -> Records:
        if said == FULL:
            raise NoRoom("it accepts no more connections from other replicas at the moment")
        theirs = Hello.read(said)
        if self._side == "asks":
            return Records(self._keys, self._mine, theirs, self._side)
        records = Records(self._keys, theirs, self._mine, self._side)
        self._out.write(self._mine.bytes)
        return records

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        self._over(exc)
        self._writable.set()

    def eof_received(self) -> None:
        """The other side has closed it."""
        self._over(None)

    def _over(self, why: Exception | None) -> None:
        if self._end is False:
            self._end = why
        self._some.set()

    def pause_writing(self) -> None:
        """The other side reads too slowly."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The other side has caught up."""
        self._writable.set()

    def tell(self, *records: tuple[bytes, bytes]) -> None:
        """Send records together, without waiting for the other side to read. Raises OSError."""
        if self._records is None or self._out.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._out.write(b"".join([self._records.seal(kind, data) for kind, data in records]))

    async def send(self, *records: tuple[bytes, bytes], within: float | None = None) -> None:
        """Send records together, waiting up to `within` seconds for the other side to read. Raises OSError."""
        self.tell(*records)
        if not self._writable.is_set():
            with anyio.fail_after(within):
                await self._writable.wait()
            if self._out.is_closing():
                raise ConnectionResetError("the connection was closed")

    async def heard(self) -> None:
        """Wait until there is something to receive, or the connection has ended."""
        while not self._waiting and self._end is False:
            await self._something()

    async def _something(self) -> None:
        self._some.clear()
        await self._some.wait()

    async def receive(self) -> tuple[bytes, bytes] | None:
        """The next record; None: the other side has closed the connection. Raises `RecordFault`, OSError."""
        while not self._waiting:
            if self._end is not False:
                if self._end is None:
                    return None
                raise self._end
            await self._something()
        record = self._waiting.popleft()
        before, self._held = self._held, self._held - len(record[1])
        if before > _HELD >= self._held and not self._out.is_closing():
            self._out.resume_reading()
        return record

    @property
    def is_idle(self) -> bool:
        """Whether it is open and idle, and nothing unexpected has arrived."""
        return not (self._waiting or self._end is not False or self._out.is_closing())

    def refuse(self) -> None:
        """Tell the other side that there is no room, and close the connection."""
        self._out.write(FULL)
        self._out.close()

    def end(self) -> None:
        """Close it once everything has been sent."""
        self._out.close()

    def close(self) -> None:
        """Close it at once; what has not been sent is lost."""
        self._out.abort()


def _look_after(kept: Any) -> None:
    """Let the kernel detect a machine that vanished without closing its connections; they would stay open otherwise."""
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if (option := getattr(socket, name, None)) is not None:
            kept.setsockopt(socket.IPPROTO_TCP, option, value)


# An owner that is gone, or was restarted, is noticed at once. One that can't be reached because either side lacks
# connections or descriptors does not count as gone.

FAULTS: Final = (OSError, EOFError, RecordFault)
"""Errors that end a connection."""
_CONNECT_TIME: Final = 5.0
"""Seconds to connect to another replica, including the wait for a turn."""
_OPENING: Final = 8
"""Connections to one replica that are opened at a time: a listener accepts only a few unproven ones."""
_KEPT: Final = 64
"""Idle connections to one replica that are kept."""
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
_NO_NAMES: Final = frozenset({socket.EAI_AGAIN, socket.EAI_SYSTEM, socket.EAI_MEMORY})

log = get_logger("replicas")


class LinkPool:
    """The connections to all other replicas."""

    def __init__(self, keys: ReplicaKeys) -> None:
        self._keys = keys
        self._kept: defaultdict[str, list[Link]] = defaultdict(list)
        self._turns: WeakValueDictionary[str, _Turns] = WeakValueDictionary()

    async def link(self, owner: Replica) -> Link:
        """A connection that nobody else uses. Raises `OwnerGone`, `ReplicaBusy`."""
        if (link := self._idle(owner)) is not None:
            return link
        turns = self._turns.setdefault(owner.address, _Turns())
        before = turns.opened
        try:
            with anyio.fail_after(_CONNECT_TIME):
                async with turns.free:
                    return self._idle(owner) or await self._opened(owner, turns)
        except NoRoom as error:
            raise _busy(owner, error) from error
        except FAULTS as error:
            # If others connected in the meantime, the replica is there.
            if _is_short(error) or (isinstance(error, TimeoutError) and turns.opened > before):
                raise _busy(owner, error) from error
            raise gone(owner, "the replica that held it can't be reached", error) from error

    def keep(self, owner: Replica, link: Link) -> None:
        """Take back a connection, to be used again."""
        if len(self._kept[owner.address]) < _KEPT:
            self._kept[owner.address].append(link)
        else:
            link.close()

    def close(self) -> None:
        """Close the idle connections."""
        for links in self._kept.values():
            for link in links:
                link.close()
        self._kept.clear()

    def _idle(self, owner: Replica) -> Link | None:
        links = self._kept[owner.address]
        while links:
            link = links.pop()
            if link.is_idle:
                return link
            link.close()
        return None

    async def _opened(self, owner: Replica, turns: "_Turns") -> Link:
        self._clear()
        host, _, port = owner.address.rpartition(":")
        link = await Link.connect(host.strip("[]"), int(port), self._keys)
        turns.note()
        return link

    def _clear(self) -> None:
        """Close idle connections to replicas that have ended: they may never be asked for again."""
        for address, links in list(self._kept.items()):
            for link in [each for each in links if not each.is_idle]:
                links.remove(link)
                link.close()
            if not links:
                del self._kept[address]


class _Turns:
    """The requests that open a connection to one replica, a few at a time."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(_OPENING)
        self.opened = 0

    def note(self) -> None:
        self.opened += 1


def gone(owner: Replica, what: str, error: Exception, *, asked: bool = False) -> OwnerGone:
    """The error for an owner that is gone. Its address and the reason go to the log; clients see no address."""
    _note(owner, what, error)
    return OwnerGone(what, asked=asked)


def _busy(owner: Replica, error: Exception) -> ReplicaBusy:
    what = "no connection to the replica that holds it is free"
    _note(owner, what, error)
    return ReplicaBusy(f"{what}: try again")


def _note(owner: Replica, what: str, error: Exception) -> None:
    log.warning(what, address=owner.address, reason=str(error) or type(error).__name__)


def _is_short(error: Exception) -> bool:
    if not isinstance(error, OSError):
        return False
    return error.errno in (_NO_NAMES if isinstance(error, socket.gaierror) else _SHORT)
