"""Replicas of one gateway: where each is found by the others, and the secret that all have."""

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
    """The other replicas, each of which may get any client's request."""

    address: str | None = None
    """Host or address of this machine at which the others reach this one; None: it is alone."""
    port: int = 8602
    key_file: Path | None = None
    """File with the secret that all have."""
    previous_key_file: Path | None = None
    """File with one more that is accepted, while secrets are exchanged."""

    @property
    def named(self) -> str:
        """HOST:PORT by which the others find this one."""
        return f"[{self.address}]:{self.port}" if ":" in (self.address or "") else f"{self.address}:{self.port}"

    def read_secrets(self) -> list[bytes]:
        """The secrets, that to be used first. Raises `ConfigError`."""
        files = {"key_file": self.key_file, "previous_key_file": self.previous_key_file}
        return [_secret(key, path) for key, path in files.items() if path is not None]


_REPLICAS = ReplicasConfig()


class ReplicasSection(Section):
    """`[replicas]`: gateways behind one balancer, each of which may get any client's request."""

    address: str | None = Field(
        default=None,
        min_length=1,
        description="Host or address of this machine, at which the others reach this gateway; unset: it is alone.",
    )
    port: int = Field(
        default=_REPLICAS.port, ge=1, le=65535, description="Port of that address, at which it listens for the others."
    )
    key_file: str | None = Field(
        default=None, description="File with the secret that all have: 32 characters at least (`openssl rand -hex 32`)."
    )
    previous_key_file: str | None = Field(
        default=None, description="File with one more secret that is accepted, while secrets are exchanged."
    )


def build_replicas(values: Mapping[str, Any]) -> ReplicasConfig:
    """The `[replicas]` table. Raises `ConfigError`."""
    paths = {key: Path(values[key]) for key in ("key_file", "previous_key_file") if values.get(key)}
    config = replace(ReplicasConfig(), **{**values, **paths})
    if (config.address is None) != (config.key_file is None):
        given, missing = ("key_file", "address") if config.address is None else ("address", "key_file")
        raise ConfigError(f"replicas.{given} is set, but not replicas.{missing}: replicas need both")
    if config.address in _EVERY_ADDRESS:
        raise ConfigError(
            f"replicas.address is {config.address!r}, which is every address of a machine and none by which the others "
            "find this one: name one of its own"
        )
    return config


def _secret(key: str, path: Path) -> bytes:
    try:
        text = path.read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"replicas.{key}: {str(path)!r} can't be read: {error.strerror}") from error
    if len(text) < _LEAST:
        raise ConfigError(
            f"replicas.{key}: {str(path)!r} holds {len(text)} characters; expected a secret of {_LEAST} at least "
            "(`openssl rand -hex 32`)"
        )
    return hashlib.sha256(text).digest()
