"""What a parent and a worker share: a directory of sockets, what the worker is handed at its start, and their lines."""

import json
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gateway.app.options import ServeOptions
from gateway.config.replicas import WorkerConfig
from gateway.errors import ConfigError, GatewayError
from gateway.escape import cut_text

_LONGEST_PATH: Final = 80
"""Characters of the directory's path. The whole path of a Unix socket may have 107."""


@contextmanager
def socket_folder() -> Generator[Path]:
    """Create a directory that only its owner may enter, and remove it with the context. Raises `ConfigError`."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="codec-gateway-"))
    except OSError as error:
        raise ConfigError(
            f"workers need a directory for their sockets ({error}): set TMPDIR to one that can be written"
        ) from error
    try:
        if len(str(folder)) > _LONGEST_PATH:
            raise ConfigError(f"the path {str(folder)!r} is too long for sockets: set TMPDIR to a shorter one")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def admin_socket(folder: Path, number: int) -> Path:
    """The path of the socket on which a worker answers its parent's questions."""
    return folder / f"admin-{number}.sock"


Order = Literal["drain", "end", "reload"]
ORDERS: Final[dict[bytes, Order]] = {b"drain\n": "drain", b"end\n": "end", b"reload\n": "reload"}
_LONGEST: Final = 4000
"""Characters of a reason."""
READY: Final = b"ready\n"


def order_line(order: Order) -> bytes:
    """The line for an order."""
    return f"{order}\n".encode()


def failure_line(error: GatewayError) -> bytes:
    """The line for the reason why a worker ends."""
    said = {"failed": cut_text(error.message, _LONGEST), "config": isinstance(error, ConfigError)}
    return json.dumps(said).encode() + b"\n"


def fault_of(line: bytes) -> GatewayError | None:
    """The error that a worker's first line reports; None: it is ready. If the line has no end, the worker has ended."""
    if line == READY:
        return None
    if not line.endswith(b"\n"):
        return GatewayError("it ended before it was ready")
    said = json.loads(line)
    return ConfigError(said["failed"]) if said["config"] else GatewayError(said["failed"])


# The argument contains no secret: the key that the workers share comes through a pipe, and only the pipe's descriptor
# is named here.


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
