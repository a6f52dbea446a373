"""The store that replicas may share: where it is, and how long a request waits for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from pydantic import Field

from gateway.config.masking import mask_text
from gateway.config.section import Seconds, Section
from gateway.errors import ConfigError

_SCHEMES: Final = ("redis", "rediss", "unix")


@dataclass(frozen=True, slots=True)
class SharedConfig:
    """Redis or Valkey, asked by all replicas."""

    url: str | None = None
    """Its address, with user and password where it asks for them; None: nothing is shared."""
    prefix: str = "codec-gateway:"
    """Every key begins with it."""
    timeout: float = 0.1
    """Seconds that a request waits for it, at most."""
    ttl: float = 24 * 3600.0
    """Seconds for which a conversation is kept that nobody goes on with."""

    @property
    def secrets(self) -> frozenset[str]:
        """What of the address must not be shown."""
        password = None if self.url is None else _parts(self.url).password
        return frozenset({password, unquote(password)}) if password else frozenset()


NOTHING_SHARED: Final = SharedConfig()


class SharedSection(Section):
    """`[shared]`: a Redis or Valkey that all replicas ask; without one everything is correct too."""

    url: str | None = Field(
        default=None,
        description="`redis://USER:PASSWORD@HOST:PORT/DB`, `rediss://...` (TLS) or `unix:///PATH`; unset: nothing is "
        'shared. `"redis://:${REDIS_PASSWORD}@redis:6379/0"` takes the password from the environment.',
    )
    prefix: Annotated[str, Field(pattern=r"^[A-Za-z0-9:._{}-]{1,64}$")] = Field(
        default=NOTHING_SHARED.prefix, description="Every key begins with it: 1 to 64 of letters, digits and `:._{}-`."
    )
    timeout: Annotated[float, Field(gt=0, le=5)] = Field(
        default=NOTHING_SHARED.timeout,
        description="Seconds that a request waits for the store, at most; after that it is away until it answers.",
    )
    ttl: Seconds = Field(
        default=NOTHING_SHARED.ttl,
        description="Seconds for which a conversation is kept there that nobody goes on with; stored answers have "
        "`limits.responses_ttl`.",
    )


def build_shared(values: Mapping[str, Any], *, alone: bool) -> SharedConfig:
    """The `[shared]` table. `alone`: whether this gateway has no replicas. Raises `ConfigError`."""
    config = replace(SharedConfig(), **values)
    if config.url is None:
        return config
    scheme = _parts(config.url).scheme
    if scheme not in _SCHEMES:
        shown = mask_text(config.url, config.secrets)
        raise ConfigError(f"shared.url: expected redis://..., rediss://... or unix:///PATH, got {shown!r}")
    if alone:
        raise ConfigError(
            "shared.url is set, but this gateway has nobody to share with: set replicas.address and replicas.key_file, "
            "whose secret seals what is stored, or serve.workers"
        )
    return config


def _parts(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"shared.url is no address: {error}") from None
    return parts
