"""What a parent hands to a worker that it starts: which worker it is, what `serve` was given, and open descriptors.

Turns that into one argument of a command line and back. It contains no secret: the key that the workers share comes
through a pipe, and only the pipe's descriptor is named here. No IO.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from gateway.app.options import ServeOptions
from gateway.config.replicas import WorkerConfig


@dataclass(frozen=True, slots=True)
class Descriptors:
    """The numbers of the descriptors that a worker finds open when it starts."""

    parent: int
    """A socket on which orders arrive, and which reaches its end when the parent ends."""
    faces: int
    """The listening socket of all workers."""
    replicas: int | None
    """A socket at the address where the other workers reach this one; None: the settings name the address."""
    key: int | None
    """A pipe with the secret of all workers; None: the settings name a file."""

    @property
    def open(self) -> tuple[int, ...]:
        """All of them that are given."""
        return tuple(each for each in (self.parent, self.faces, self.replicas, self.key) if each is not None)


@dataclass(frozen=True, slots=True)
class Handed:
    """All that a worker is handed."""

    worker: WorkerConfig
    options: ServeOptions
    descriptors: Descriptors

    def as_argument(self) -> str:
        """Write it as one argument of a command line."""
        worker, held = self.worker, self.descriptors
        return json.dumps(
            {
                "worker": [worker.number, worker.count, str(worker.folder), worker.peers],
                "descriptors": [held.parent, held.faces, held.replicas, held.key],
                "options": self.options.as_json(),
            }
        )

    @staticmethod
    def from_argument(argument: str) -> "Handed":
        """Read what `as_argument` wrote."""
        read = json.loads(argument)
        number, count, folder, peers = read["worker"]
        worker = WorkerConfig(number, count, Path(folder), tuple(peers))
        return Handed(worker, ServeOptions.from_json(read["options"]), Descriptors(*read["descriptors"]))
