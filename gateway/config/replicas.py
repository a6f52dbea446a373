"""Several processes of one gateway: workers of one machine, replicas, and the store that these may share."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field

from gateway.config.section import Seconds, Section
from gateway.errors import ConfigError
from gateway.escape import mask_text

# The parent sets this (`gateway/workers`, docs/scale.md); no file, variable or flag does.

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


_LEAST: Final = 32
"""Characters of a secret."""
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound: these are refused


@dataclass(frozen=True, slots=True)
class ReplicasConfig:
    """How this gateway and the other replicas reach each other. Each may get any client's request."""

    address: str | None = None
    port: int = 8602
    key_file: Path | None = None
    previous_key_file: Path | None = None

    @property
    def named(self) -> str:
        """HOST:PORT at which the others reach this one."""
        return f"[{self.address}]:{self.port}" if ":" in (self.address or "") else f"{self.address}:{self.port}"

    def read_secrets(self) -> list[bytes]:
        """Read the secrets. The first one is used, the others are accepted too. Raises `ConfigError`."""
        files = {"key_file": self.key_file, "previous_key_file": self.previous_key_file}
        return [_secret(key, path) for key, path in files.items() if path is not None]


_REPLICAS = ReplicasConfig()


class ReplicasSection(Section):
    """`[replicas]`: gateways behind one balancer, each of which may get any client's request."""

    address: str | None = Field(
        default=None,
        min_length=1,
        description="Host name or address of this machine at which the other replicas reach this gateway; unset: "
        "it has no replicas.",
    )
    port: int = Field(
        default=_REPLICAS.port,
        ge=1,
        le=65535,
        description="Port of that address, on which this gateway listens for the other replicas.",
    )
    key_file: str | None = Field(
        default=None,
        description="File with the secret that all replicas share: at least 32 characters (`openssl rand -hex 32`).",
    )
    previous_key_file: str | None = Field(
        default=None, description="File with a second secret that is accepted too, while the secret is being replaced."
    )


def build_replicas(values: Mapping[str, Any]) -> ReplicasConfig:
    """Build the `[replicas]` table. Raises `ConfigError`."""
    paths = {key: Path(values[key]) for key in ("key_file", "previous_key_file") if values.get(key)}
    config = replace(ReplicasConfig(), **{**values, **paths})
    if (config.address is None) != (config.key_file is None):
        given, missing = ("key_file", "address") if config.address is None else ("address", "key_file")
        raise ConfigError(f"replicas.{given} is set, but replicas.{missing} is not: replicas need both")
    if config.address in _EVERY_ADDRESS:
        raise ConfigError(
            f"replicas.address is {config.address!r}, which stands for every address of a machine, so the other "
            "replicas can't reach this one there: set an address or name of this machine"
        )
    return config


def _secret(key: str, path: Path) -> bytes:
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"replicas.{key}: {str(path)!r} can't be read: {error.strerror}") from error
    if len(text) < _LEAST:
        raise ConfigError(
            f"replicas.{key}: {str(path)!r} holds {len(text)} characters; expected a secret of at least {_LEAST} "
            "(`openssl rand -hex 32`)"
        )
    return hashlib.sha256(text).digest()


_SCHEMES: Final = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class SharedConfig:
    """A Redis or Valkey that all replicas ask."""

    url: str | None = None
    prefix: str = "codec-gateway:"
    timeout: float = 0.1
    ttl: float = 24 * 3600.0

    @property
    def secrets(self) -> frozenset[str]:
        """The parts of the address that must not be shown."""
        password = None if self.url is None else _parts(self.url).password
        return frozenset({password, unquote(password)}) if password else frozenset()


NOTHING_SHARED: Final = SharedConfig()


class SharedSection(Section):
    """`[shared]`: a Redis or Valkey that all replicas use; everything also works without one."""

    url: str | None = Field(
        default=None,
        description="`redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://...` (TLS) or `unix:///PATH`; unset: nothing is "
        'shared. `"redis://:${REDIS_PASSWORD}@redis:6379/0"` takes the password from the environment.',
    )
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9:._{}-]{1,64}$")] = Field(
        default=NOTHING_SHARED.prefix,
        description="Prefix of every key in the store: 1 to 64 letters, digits and characters of `:._{}-`.",
    )
    timeout: Annotated[float, Field(gt=0, le=5)] = Field(
        default=NOTHING_SHARED.timeout,
        description="Longest time, in seconds, that a request waits for the store; if it takes longer, the store "
        "counts as down until it answers again.",
    )
    ttl: Seconds = Field(
        default=NOTHING_SHARED.ttl,
        description="Seconds for which a conversation that nobody continues is kept in the store; for stored "
        "responses see `limits.responses_ttl`.",
    )


def build_shared(values: Mapping[str, Any], *, alone: bool) -> SharedConfig:
    """Build the `[shared]` table. `alone`: whether this gateway has no replicas. Raises `ConfigError`."""
    config = replace(SharedConfig(), **values)
    if config.url is None:
        return config
    scheme = _parts(config.url).scheme
    if scheme not in _SCHEMES:
        shown = mask_text(config.url, config.secrets)
        raise ConfigError(f"shared.url: expected redis://..., rediss://... or unix:///PATH, got {shown!r}")
    if alone:
        raise ConfigError(
            "shared.url is set, but this gateway has no replicas to share the store with: set replicas.address and "
            "replicas.key_file (its secret also seals what is stored), or serve.workers"
        )
    return config


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(
            f"shared.url is not a valid URL: {error}: expected redis://..., rediss://... or unix:///PATH"
        ) from None
    return parts
