"""How a caller's access token is exchanged for one that is for an upstream, in its internal form (RFC 8693).

Checks what a person wrote about it, and says what is missing. It expands no variables, opens nothing and fetches
nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gateway.config.address import is_http_url
from gateway.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """Where a caller's token is exchanged, and for what."""

    client_id: str
    """The gateway's client id at the authorization server."""
    client_secret: str | None = field(default=None, repr=False)
    token_url: str | None = None
    """The token endpoint; None: the one in the metadata of `issuer`."""
    issuer: str | None = None
    """The authorization server, and the only one that gets callers' tokens."""
    audience: str | None = None
    """The upstream's name at the authorization server."""
    resource: str | None = None
    """The upstream's URL in requests for tokens (RFC 8707); None: its `url`, "": none is sent."""
    scope: str | None = None
    subject_token_type: str | None = None
    """What the authorization server calls a caller's token; None: an access token, by its standard name."""


def build_exchange(values: Mapping[str, str], headers: Iterable[str], where: str) -> ExchangeConfig:
    """Build `[upstreams.NAME.exchange]`. `headers`: the names of those that are sent with every request.

    Raises:
        ConfigError: a part is missing, is not a URL, or contradicts another setting.
    """
    config = ExchangeConfig(**values)
    if config.token_url is None and config.issuer is None:
        raise ConfigError(
            f"{where}: has 'exchange' without 'exchange.issuer': name the authorization server that exchanges tokens, "
            "so that callers' tokens go to no other"
        )
    for key, url in (("token_url", config.token_url), ("issuer", config.issuer)):
        if url is not None and not is_http_url(url):
            raise ConfigError(f"{where}: key 'exchange.{key}': expected http://HOST/... or https://HOST/...")
    if "authorization" in (name.lower() for name in headers):
        raise ConfigError(
            f"{where}: has both 'exchange' and an Authorization header under 'headers', which every caller would use: "
            "remove one of them"
        )
    return config


def refuse_useless_exchange(exchanging: Iterable[str], *, has_issuer: bool) -> None:
    """Refuse servers that exchange tokens in a gateway whose callers bring none.

    Raises:
        ConfigError: there is such a server.
    """
    if not has_issuer and (name := next(iter(exchanging), None)) is not None:
        raise ConfigError(
            f"server {name!r} has 'exchange', but callers bring no access tokens: set 'serve.oauth', or remove it"
        )
