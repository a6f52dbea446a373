"""Who may call, hold connections and see the console, and what is recorded about it: settings as written and in use."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

from pydantic import Field

from gateway.config.address import is_http_url, is_secure
from gateway.config.section import CountOrZero, Section
from gateway.errors import ConfigError

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that are checked with a public key (RFC 7518). A shared secret (`HS256`) or `none` is never accepted."""
_NEVER_IN_URLS: Final = frozenset(' "\\<>^`{|}')
SCOPE_PREFIX: Final = "mcp"


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """The authorization server whose access tokens are accepted (OAuth 2.1, RFC 9068)."""

    issuer: str
    resource: str
    audience: str
    """What the tokens' `aud` must contain: the resource, unless the server has another name for the gateway."""
    jwks_url: str | None = None
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    scope_prefix: str = SCOPE_PREFIX
    scopes: tuple[str, ...] = ()
    leeway: float = 30.0
    rate: int = 0
    concurrency: int = 0


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The audit log: one JSON line for each call."""

    path: Path | None = None
    arguments: bool = False


@dataclass(frozen=True, slots=True)
class TrajectoriesConfig:
    """Trajectories: one JSON line for each answer."""

    path: Path | None = None
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """OpenTelemetry traces."""

    otlp_endpoint: str | None = None
    service_name: str = "codec-gateway"


def build_oauth(values: Mapping[str, Any]) -> OAuthConfig | None:
    """Build the `[serve.oauth]` table; None if no issuer is set. Raises `ConfigError`: a part is missing or not a
    URL."""
    given = {key: value for key, value in values.items() if value not in (None, [])}
    if "issuer" not in given:
        if given:
            raise ConfigError(f"serve.oauth: {next(iter(given))!r} is set without 'issuer': set both, or neither")
        return None
    if "resource" not in given:
        raise ConfigError("serve.oauth.resource is not set: write the URL by which clients reach /mcp")
    for key in ("issuer", "resource", "jwks_url"):
        _check_url(f"serve.oauth.{key}", given.get(key))
    resource = given["resource"]
    prefix = given.get("scope_prefix", SCOPE_PREFIX)
    basis = OAuthConfig(given["issuer"], resource, resource, scopes=(f"{prefix}:server:*",))
    lists = {key: tuple(given[key]) for key in ("algorithms", "scopes") if key in given}
    return replace(basis, **{**given, **lists})


def build_audit(values: Mapping[str, Any]) -> AuditConfig:
    """Build the `[audit]` table."""
    path: str | None = values.get("path")
    return AuditConfig(Path(path) if path else None, values.get("arguments", False))


def build_trajectories(values: Mapping[str, Any]) -> TrajectoriesConfig:
    """Build the `[trajectories]` table."""
    path: str | None = values.get("path")
    return TrajectoriesConfig(Path(path) if path else None, values.get("logprobs", False))


def build_telemetry(values: Mapping[str, Any]) -> TelemetryConfig:
    """Build the `[telemetry]` table. Raises `ConfigError` if the endpoint is not a URL."""
    telemetry = replace(TelemetryConfig(), **values)
    if telemetry.otlp_endpoint and not is_http_url(telemetry.otlp_endpoint):
        raise ConfigError(f"telemetry.otlp_endpoint: expected http://HOST:PORT, got {telemetry.otlp_endpoint!r}")
    return telemetry


def _check_url(key: str, url: str | None) -> None:
    """Refuse what is no URL, or leads off this machine without TLS: keys and tokens sent in the clear prove nothing."""
    if url is None:
        return
    plain = url.isascii() and not set(url) & _NEVER_IN_URLS
    if not plain or not is_http_url(url) or urlsplit(url).fragment or not is_secure(url):
        raise ConfigError(f"{key}: expected https://HOST/PATH without a fragment, got {url!r}")


_OAUTH = OAuthConfig("", "", "")
_AUDIT, _TRAJECTORIES, _TELEMETRY = AuditConfig(), TrajectoriesConfig(), TelemetryConfig()


Scope = Annotated[str, Field(pattern=r"^[!#-\[\]-~]+$")]
"""RFC 6749 §3.3: printable ASCII without blanks, quotes and backslashes."""


class OAuthSection(Section):
    """`[serve.oauth]`."""

    issuer: str | None = Field(
        default=None, description="Identifier (URL) of the authorization server whose access tokens are accepted."
    )
    resource: str | None = Field(
        default=None, description="URL by which clients reach `/mcp`; they ask for tokens for it (RFC 8707)."
    )
    audience: str | None = Field(
        default=None, description="What the tokens' `aud` must contain, if that is not `resource`."
    )
    jwks_url: str | None = Field(
        default=None, description="URL of the issuer's public keys; unset: the one in the issuer's metadata."
    )
    algorithms: list[Algorithm] = Field(
        default=list(_OAUTH.algorithms),
        min_length=1,
        description="Signature algorithms that are accepted.",
    )
    scope_prefix: str = Field(
        default=SCOPE_PREFIX,
        pattern=r"^[A-Za-z0-9._/-]{1,64}$",
        description="First part of the scopes `mcp:server:NAME` and `mcp:tool:NAME`.",
    )
    scopes: list[Scope] = Field(
        default=[], description="Scopes that clients are told to ask for; unset: the one for all servers."
    )
    leeway: Annotated[float, Field(ge=0, le=300)] = Field(
        default=_OAUTH.leeway, description="Seconds by which the clocks of the issuer and the gateway may differ."
    )
    rate: CountOrZero = Field(
        default=_OAUTH.rate, description="Requests per minute that one subject may make; 0: no limit."
    )
    concurrency: CountOrZero = Field(
        default=_OAUTH.concurrency, description="Requests of one subject that may run at a time; 0: no limit."
    )


class AuditSection(Section):
    """`[audit]`."""

    path: str | None = Field(
        default=None, description="File to which one JSON line per call is written; unset: there is no audit log."
    )
    arguments: bool = Field(
        default=_AUDIT.arguments, description="`true`: the arguments of calls are written too, with secrets masked."
    )


class TrajectoriesSection(Section):
    """`[trajectories]`: ids of answers, for training."""

    path: str | None = Field(
        default=None,
        description="File to which one JSON line per answer of `/v1` is written: its ids, and where each came "
        "from; unset: there is none. The file contains everything that was said: ids are text, since anybody with the "
        "tokenizer can decode them, and `console.texts` does not apply to it.",
    )
    logprobs: bool = Field(
        default=_TRAJECTORIES.logprobs,
        description="`true`: the engine is asked for the log-probability of each id that it samples.",
    )


class TelemetrySection(Section):
    """`[telemetry]`."""

    otlp_endpoint: str | None = Field(
        default=None,
        description="Collector to which OpenTelemetry traces are sent by OTLP over HTTP; unset: nothing is traced.",
    )
    service_name: str = Field(
        default=_TELEMETRY.service_name, min_length=1, description="Name of this gateway in the traces."
    )


@dataclass(frozen=True, slots=True)
class ConnectionsConfig:
    """Bounds on clients' connections, whoever the clients are."""

    total: int = 4096
    per_address: int = 512
    head_bytes: int = 64 * 1024
    head_fields: int = 100
    head_timeout: float = 10.0
    body_timeout: float = 60.0
    idle_timeout: float = 75.0
    write_timeout: float = 60.0


def read_networks(written: Iterable[str], key: str) -> tuple[str, ...]:
    """Read addresses and networks (`10.0.0.0/8`), each as a network. Raises `ConfigError`: one is neither; `key` names
    the setting."""
    found: list[str] = []
    for each in written:
        try:
            found.append(str(ip_network(each.strip(), strict=False)))
        except ValueError:
            raise ConfigError(f"{key}: expected an address or a network such as 10.0.0.0/8, got {each!r}") from None
    return tuple(found)


SHORTEST: Final = 32
"""Characters that a token needs so that nobody can guess it, even from a URL that was signed with it."""
VARIABLE: Final = "CODEC_ADMIN_TOKEN"


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    """The pages under `/console` of the admin port."""

    texts: Literal["auto", "off", "on"] = "auto"
    token: str | None = None


CONSOLE: Final = ConsoleConfig()


class ConsoleSection(Section):
    """`[console]`: the pages under `/console` of the admin port ([how](console.md))."""

    texts: Literal["auto", "off", "on"] = Field(
        default=CONSOLE.texts,
        description="`on`: the console shows the text of all callers' conversations, with secrets masked, to everybody "
        "who signs in. `off`: it shows counts and sources only, no text and no token ids, since ids are text: anybody "
        "with the tokenizer can decode them. `auto`: each person who signs in can switch, for their own session; text "
        "is shown at first if the admin port is on loopback, no proxy stands between, and there are no API keys and no "
        "OAuth issuer.",
    )
    token: Annotated[str, Field(min_length=SHORTEST)] | None = Field(
        default=CONSOLE.token,
        description="Secret with which the operator signs in, at least 32 characters. Best set as "
        "CODEC_ADMIN_TOKEN; unset: one in the state folder, which `codec-gateway console` uses.",
    )


@dataclass(frozen=True, slots=True)
class ExchangeConfig:
    """Where a caller's token is exchanged, and for what."""

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    token_url: str | None = None
    issuer: str | None = None
    audience: str | None = None
    resource: str | None = None
    scope: str | None = None
    subject_token_type: str | None = None


def build_exchange(values: Mapping[str, str], headers: Iterable[str], where: str) -> ExchangeConfig:
    """Build `[upstreams.NAME.exchange]`. `headers`: the names of those that are sent with every request. Raises
    `ConfigError`: a part is missing, is not a URL, or contradicts another setting."""
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
    """Refuse servers that exchange tokens in a gateway whose callers bring none. Raises `ConfigError`: there is such a
    server."""
    if not has_issuer and (name := next(iter(exchanging), None)) is not None:
        raise ConfigError(
            f"server {name!r} has 'exchange', but callers bring no access tokens: set 'serve.oauth', or remove it"
        )
