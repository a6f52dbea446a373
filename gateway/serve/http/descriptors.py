"""The process's limit of open files, and how much of it clients' connections may use.

Raises the soft limit to the hard one. The part that clients may not use is kept for the admin port, servers' processes,
the engine and logs, so that these go on working when strangers have opened as many connections as they can.
"""

import resource
from dataclasses import dataclass
from typing import Final

from gateway.observe.logs import get_logger

_RESERVE: Final = 512

log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class FileLimit:
    """The limit of open files, and the part that clients may not use."""

    files: int
    reserve: int

    @property
    def for_clients(self) -> int:
        """File descriptors from this number on are not for clients (the kernel hands out the lowest free one)."""
        return self.files - self.reserve


def raise_file_limit(connections: int) -> FileLimit:
    """Raise the limit of this process as far as allowed. `connections`: how many clients are configured to have."""
    soft, hard = raise_soft_limit()
    limit = file_limit(hard)
    if soft != hard:
        log.info("limit of open files raised", limit=limit.files, raised_from=soft, reserved=limit.reserve)
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
    """Raise the soft limit of open files to the hard one. Returns the old limit and the new one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def file_limit(files: int) -> FileLimit:
    """Split a limit of `files` open files: a quarter is kept from clients, but no more than `_RESERVE`."""
    return FileLimit(files, min(_RESERVE, files // 4))
