"""Which of several processes of one gateway on one machine this is (docs/scale.md).

The parent sets it (`gateway/workers`); no file, variable or flag does.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERVERS: Final = "servers.sock"
"""The socket in the parent's directory at which it offers servers over stdio."""


def fault_file(folder: Path, engine: str) -> Path:
    """Where the parent writes why an embedded engine is not up."""
    return folder / f"engine-{engine}.fault"


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """One worker, and how it finds its parent and the other workers."""

    number: int
    """Counted from 0."""
    count: int
    folder: Path
    """The parent's directory of Unix sockets, which only its owner may enter: `admin-NUMBER.sock` of each worker, and
    what the parent offers to all workers."""
    peers: tuple[str, ...]
    """HOST:PORT at which the others reach each worker, in the order of their numbers, this one included; it is part of
    the names that they seal (`gateway/replicas`). They stay the same for the parent's whole life."""

    def engine_fault(self, name: str) -> str | None:
        """Why an embedded engine is not up, in the parent's words; None: it is up, or is not the parent's."""
        path = fault_file(self.folder, name)
        return path.read_text(encoding="utf-8") if path.is_file() else None

    @property
    def servers(self) -> Path:
        """The socket at which the parent offers servers over stdio."""
        return self.folder / SERVERS
