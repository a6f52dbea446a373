"""The settings about who may call and what is recorded about it, in their internal form.

The part of `model.py` that is about identities: OAuth tokens, the audit log, trajectories, traces. Times are seconds.
The `build_*` functions turn checked values into it, and say what is missing. It opens nothing and fetches nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from gateway.config.address import is_http_url, is_loopback
from gateway.errors import ConfigError

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Signatures that are checked with a public key (RFC 7518). A shared secret (`HS256`) or `none` is never accepted."""
_NEVER_IN_URLS: Final = frozenset(' "\\<>^`{|}')
SCOPE_PREFIX: Final = "mcp"


@dataclass(frozen=True, slots=True)
class OAuthConfig:
    """The authorization server whose access tokens are accepted (OAuth 2.1, RFC 9068)."""

    issuer: str
    """Its identifier, as in the tokens' `iss`."""
    resource: str
    """The gateway's own address as clients write it (RFC 8707): `https://gateway.example/mcp`."""
    audience: str
    """What the tokens' `aud` must contain: the resource, unless the server has another name for the gateway."""
    jwks_url: str | None = None
    """The URL of its public keys; None: the one in its metadata (RFC 8414, OpenID Connect Discovery)."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "PS256", "ES256", "EdDSA")
    scope_prefix: str = SCOPE_PREFIX
    """Prefix of the scopes `PREFIX:server:NAME` and `PREFIX:tool:NAME`."""
    scopes: tuple[str, ...] = ()
    """Scopes that clients are told to ask for."""
    leeway: float = 30.0
    """Seconds by which its clock and ours may differ."""
    rate: int = 0
    """Requests a minute that one subject may make; 0: any number."""
    concurrency: int = 0
    """Requests of one subject that may run at a time; 0: any number."""


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """The audit log: one JSON line for each call."""

    path: Path | None = None
    """Where the lines go; None: nothing is written."""
    arguments: bool = False
    """Whether the arguments of calls are written too, with secrets masked."""


@dataclass(frozen=True, slots=True)
class TrajectoriesConfig:
    """Trajectories: one JSON line for each answer."""

    path: Path | None = None
    """Where the lines go; None: nothing is written."""
    logprobs: bool = False
    """Whether the engine is asked for the log-probability of each id that it samples."""


@dataclass(frozen=True, slots=True)
class TelemetryConfig:
    """OpenTelemetry traces."""

    otlp_endpoint: str | None = None
    """Collector that takes OTLP over HTTP; None: nothing is traced."""
    service_name: str = "codec-gateway"


def build_oauth(values: Mapping[str, Any]) -> OAuthConfig | None:
    """Build the `[serve.oauth]` table; None if no issuer is set.

    Raises:
        ConfigError: a part is missing or not a URL.
    """
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


def is_secure(url: str) -> bool:
    """Whether what is fetched there can be trusted: it comes over TLS, or from this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback(parts.hostname or "")
