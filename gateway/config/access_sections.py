"""The settings about who may call and what is recorded about it: their keys, bounds and descriptions.

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
