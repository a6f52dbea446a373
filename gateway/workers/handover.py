"""What a parent and a worker share: a directory of sockets, what the worker is handed at its start, and their lines."""

import json
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from gateway.config.engine_tables import copies
from gateway.config.load import load_config
from gateway.config.model import GatewayConfig
from gateway.config.replicas import WorkerConfig
from gateway.engine.start.maps import has_no_model
from gateway.errors import ConfigError, GatewayError
from gateway.escape import cut_text
from gateway.serve.auth.gateway_token import ensure_token

# The options of a `serve` command, and the settings that they result in.
#
# Turns flags and the files that they name into a `GatewayConfig`, at the start and whenever the files change. Turns
# the options into JSON and back, so that another process can read the same settings.


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of one `serve` command."""

    config: Path | None
    flags: Mapping[str, object]
    """Settings by dotted key; None: not given."""
    engines: int | None
    log_level: str

    def read(self) -> GatewayConfig:
        """Read the settings as they are now. Raises `ConfigError`."""
        settings = load_config(self.config, self.flags)
        if self.engines is not None:
            settings = copies(settings, self.engines)
        settings = replace(settings, serve=replace(settings.serve, token=ensure_token(settings)))
        if not self.names_map and has_no_model(settings):
            settings = replace(settings, tokens=replace(settings.tokens, map=None))
        return settings

    @property
    def names_map(self) -> bool:
        """Whether a token map was asked for by name."""
        return self.flags.get("tokens.map") is not None

    def as_json(self) -> dict[str, Any]:
        """The options as JSON values. Relative paths stay relative to the current folder."""
        flags = {key: str(value) if isinstance(value, Path) else value for key, value in self.flags.items()}
        config = None if self.config is None else str(self.config)
        return {"config": config, "flags": flags, "engines": self.engines, "log_level": self.log_level}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "ServeOptions":
        """Read what `as_json` returned."""
        config = None if values["config"] is None else Path(values["config"])
        return ServeOptions(config, values["flags"], values["engines"], values["log_level"])


# The parent's directory: Unix sockets over which it and its workers talk, out of reach of other users.

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


# What a parent and a worker say to each other on the socket between them, line by line.
#
# The parent sends one of `ORDERS`. A worker says once that it is ready, or why it can't be. No IO.

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


# What a parent hands to a worker that it starts: which worker it is, what `serve` was given, and open descriptors.
#
# Turns that into one argument of a command line and back. It contains no secret: the key that the workers share comes
# through a pipe, and only the pipe's descriptor is named here. No IO.


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
