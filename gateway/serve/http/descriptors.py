"""The process's limit of open files, and how much of it connections of clients may use.

Raises the soft limit to the hard one. What clients may not use is kept for the admin port, servers' processes, the
engine and logs, so that these go on working when strangers have opened all that they can.
"""

import resource
from dataclasses import dataclass
from typing import Final

from gateway.observe.logs import get_logger

_RESERVE: Final = 512

log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class FileLimit:
    """The limit of open files, and the part that is kept from clients."""

    files: int
    reserve: int

    @property
    def for_clients(self) -> int:
        """File descriptors from this number on are not for clients: the kernel gives out the lowest that is free."""
        return self.files - self.reserve


def raise_file_limit(connections: int) -> FileLimit:
    """Raise the limit of this process as far as it may go; `connections` is how many clients are meant to have."""
    soft, hard = raise_soft_limit()
    limit = file_limit(hard)
    log.info("open files", limit=limit.files, raised_from=soft, kept_from_clients=limit.reserve)
    if limit.for_clients < connections:
        log.warning(
            "the limit of open files allows fewer connections than serve.connections.total: raise it (ulimit -n, "
            "LimitNOFILE=), or lower the setting",
            limit=limit.files,
            connections=limit.for_clients,
            total=connections,
        )
    return limit


def raise_soft_limit() -> tuple[int, int]:
    """Have as many open files as may be; gives the limit as it was, and as it is."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def file_limit(files: int) -> FileLimit:
    """Split a limit of so many open files: a quarter is kept, and no more than is needed."""
    return FileLimit(files, min(_RESERVE, files // 4))
