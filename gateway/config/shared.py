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
    """A Redis or Valkey that all replicas ask."""

    url: str | None = None
    """Its address, with user and password where it asks for them; None: nothing is shared."""
    prefix: str = "codec-gateway:"
    """What every key begins with."""
    timeout: float = 0.1
    """Seconds that a request waits for it, at most."""
    ttl: float = 24 * 3600.0
    """Seconds for which a conversation is kept that nobody continues."""

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
