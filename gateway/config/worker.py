"""One of several processes of one gateway on one machine (docs/scale.md), as the rest of it sees that.

Its parent makes it (`gateway/workers`); no file, variable or flag does.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERVERS: Final = "servers.sock"
"""Where the parent runs the processes of servers over stdio, in its directory."""


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Which of them this process is."""

    number: int
    """From 0 on."""
    count: int
    folder: Path
    """A directory of the parent's, for its owner alone, in which Unix sockets lie: `admin-NUMBER.sock` of each worker.
    What the parent has for all workers listens here too: this path is how a worker is told where."""
    peers: tuple[str, ...]
    """HOST:PORT at which each worker is found by the others, by number, this one too: as in the names that they seal
    (`gateway/replicas`). They hold for the parent's whole life."""

    @property
    def servers(self) -> Path:
        """The socket at which the parent runs the processes of servers over stdio."""
        return self.folder / SERVERS
