"""The connections of this replica to the others, kept while they are idle.

Turns an owner into a connection to it. An owner that is gone, or was restarted, is noticed at once. One that can't be
reached because either side lacks connections or descriptors does not count as gone.
"""

import asyncio
import errno
import socket
from collections import defaultdict
from typing import Final
from weakref import WeakValueDictionary

import anyio

from gateway.errors import OwnerGone, ReplicaBusy
from gateway.observe.logs import get_logger
from gateway.replicas.interface import Replica
from gateway.replicas.keys import ReplicaKeys
from gateway.replicas.link import Link
from gateway.replicas.records import NoRoom, RecordFault

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
        """Nothing is connected yet."""
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
        """Count an opened connection."""
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
    """Whether this machine lacks a resource."""
    if not isinstance(error, OSError):
        return False
    return error.errno in (_NO_NAMES if isinstance(error, socket.gaierror) else _SHORT)
