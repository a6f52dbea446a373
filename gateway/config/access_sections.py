"""The settings about who may call and what is written down: their keys, bounds and words.

Defaults come from `access.py`.
"""

from typing import Annotated

from pydantic import Field

from gateway.config.access import SCOPE_PREFIX, Algorithm, AuditConfig, OAuthConfig, TelemetryConfig, TrajectoriesConfig
from gateway.config.section import CountOrZero, Section

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
        default=None, description="What the tokens' `aud` must hold, where that is not `resource`."
    )
    jwks_url: str | None = Field(
        default=None, description="Where the issuer's public keys are; unset: where its metadata says."
    )
    algorithms: list[Algorithm] = Field(
        default=list(_OAUTH.algorithms),
        min_length=1,
        description="Signatures that are accepted.",
    )
    scope_prefix: str = Field(
        default=SCOPE_PREFIX,
        pattern=r"^[A-Za-z0-9._/-]{1,64}$",
        description="Front of the scopes `mcp:server:NAME` and `mcp:tool:NAME`.",
    )
    scopes: list[Scope] = Field(
        default=[], description="Scopes that clients are told to ask for; unset: those of every server."
    )
    leeway: Annotated[float, Field(ge=0, le=300)] = Field(
        default=_OAUTH.leeway, description="Seconds by which the issuer's clock and ours may differ."
    )
    rate: CountOrZero = Field(
        default=_OAUTH.rate, description="Requests a minute that one subject may make; 0: any number."
    )
    concurrency: CountOrZero = Field(
        default=_OAUTH.concurrency, description="Requests of one subject that may run at a time; 0: any number."
    )


class AuditSection(Section):
    """`[audit]`."""

    path: str | None = Field(default=None, description="File that gets one JSON line a call; unset: none is written.")
    arguments: bool = Field(
        default=_AUDIT.arguments, description="Write the arguments of calls too, with secrets masked."
    )


class TrajectoriesSection(Section):
    """`[trajectories]`: ids of answers, for training."""

    path: str | None = Field(
        default=None,
        description="File that gets one JSON line an answer of `/v1`: its ids, and where each came from; unset: none "
        "is written. It holds all that was said.",
    )
    logprobs: bool = Field(
        default=_TRAJECTORIES.logprobs,
        description="Ask the engine for the log-probability of each id that it samples.",
    )


class TelemetrySection(Section):
    """`[telemetry]`."""

    otlp_endpoint: str | None = Field(
        default=None, description="Collector that takes OpenTelemetry traces by OTLP over HTTP; unset: none are made."
    )
    service_name: str = Field(
        default=_TELEMETRY.service_name, min_length=1, description="What the traces call this gateway."
    )
