"""Replicas of one gateway: the address at which the others reach each one, and the secret that they share."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import Field

from gateway.config.section import Section
from gateway.errors import ConfigError

_LEAST: Final = 32
"""Characters of a secret."""
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - nothing is bound: these are refused


@dataclass(frozen=True, slots=True)
class ReplicasConfig:
    """How this gateway and the other replicas reach each other. Each may get any client's request."""

    address: str | None = None
    """Host or address of this machine at which the others reach this one; None: it is alone."""
    port: int = 8602
    key_file: Path | None = None
    """File with the secret that all replicas have."""
    previous_key_file: Path | None = None
    """File with another secret that is accepted too, while the secret is being replaced."""

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
