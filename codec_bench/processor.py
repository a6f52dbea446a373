"""CPU time of the processes that listen on a port of this machine.

Turns a port into processes, and these into seconds, which Linux shows to a process's owner. It learns nothing about
other users' processes, or on other systems. Processes that a server has started are not included: a gateway's embedded
engine is a process of its own.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from time import clock_gettime
from typing import Final

_CPU_CLOCK: Final = 2
"""CPUCLOCK_SCHED: nanoseconds as the scheduler counts them."""
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LISTENS: Final = "0A"


def cpu_seconds(pid: int) -> float:
    """CPU time of a process, to the nanosecond, including threads that have ended. Raises `OSError`."""
    # The clock that clock_getcpuclockid(3) returns for a process on Linux; Python does not offer that function.
    return clock_gettime((~pid << 3) | _CPU_CLOCK)


def spent(pids: Sequence[int]) -> float | None:
    """CPU seconds of all of them; None if there are none, or if one has ended."""
    try:
        return sum(map(cpu_seconds, pids)) if pids else None
    except OSError:
        return None


def listeners(port: int) -> list[int]:
    """The processes that listen there, as far as this process may see them."""
    sockets = {f"socket:[{inode}]" for table in _TABLES for inode in _listening(table, port)}
    if not sockets:
        return []
    processes = (each.name for each in Path("/proc").iterdir() if each.name.isdigit())
    return [int(name) for name in processes if _holds(name, sockets)]


def _listening(table: Path, port: int) -> Iterator[str]:
    with suppress(OSError):
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == _LISTENS and int(local.rpartition(":")[2], 16) == port:
                yield inode


def _holds(pid: str, sockets: set[str]) -> bool:
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as held:
        for each in held:
            with suppress(OSError):
                if os.readlink(each.path) in sockets:  # noqa: PTH115 - a path object for each of thousands costs
                    return True
    return False
