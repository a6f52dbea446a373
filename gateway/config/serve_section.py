"""`[serve]` and `[serve.connections]`: their keys, bounds and words.

Defaults come from `model.py`.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from gateway.config.access_sections import OAuthSection
from gateway.config.connections import ConnectionsConfig
from gateway.config.model import ServeConfig
from gateway.config.section import Count, Port, Seconds, Section

MOST_WORKERS: Final = 256
_SERVE, _CONNECTIONS = ServeConfig(), ConnectionsConfig()


class ConnectionsSection(Section):
    """`[serve.connections]`."""

    total: Count = Field(
        default=_CONNECTIONS.total, description="Connections of clients that may be open at a time; one more gets 503."
    )
    per_address: Count = Field(
        default=_CONNECTIONS.per_address,
        description="The same for one address (of IPv6: one /64). Behind a proxy see `serve.trusted_proxies`.",
    )
    head_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=_CONNECTIONS.head_bytes,
        description="Largest head of a request (its line and headers) in bytes; a larger one gets 431.",
    )
    head_fields: Count = Field(
        default=_CONNECTIONS.head_fields, description="Most headers of a request; with more it gets 431."
    )
    head_timeout: Seconds = Field(
        default=_CONNECTIONS.head_timeout,
        description="Seconds after its first byte (of a new connection: after it was opened) by which a head must be "
        "complete.",
    )
    body_timeout: Seconds = Field(
        default=_CONNECTIONS.body_timeout, description="Longest silence in the middle of a body in seconds."
    )
    idle_timeout: Seconds = Field(
        default=_CONNECTIONS.idle_timeout,
        description="Longest silence between two requests of a connection in seconds. A proxy in front needs less.",
    )
    write_timeout: Seconds = Field(
        default=_CONNECTIONS.write_timeout,
        description="Seconds for which a client may take nothing of what is written to it before its connection ends.",
    )


class ServeSection(Section):
    """`[serve]`."""

    host: str = Field(
        default=_SERVE.host, description="Address of `/mcp` and `/v1`. Beyond loopback a token is required."
    )
    port: Port = Field(default=_SERVE.port, description="Port of `/mcp` and `/v1`; 0: any free one.")
    admin_host: str = Field(
        default=_SERVE.admin_host, description="Address of `/metrics` and `/healthz`, which need no key."
    )
    admin_port: Port = Field(
        default=_SERVE.admin_port, description="Port of `/metrics` and `/healthz`; 0: any free one."
    )
    workers: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_WORKERS)] = Field(
        default=_SERVE.workers,
        description="Processes that serve, on the same ports: a number, or `auto` for as many as the gateway may use "
        "cores ([how](scale.md)).",
    )
    token: str | None = Field(
        default=_SERVE.token,
        min_length=8,
        description="Bearer token that every client must send. Best set as CODEC_GATEWAY_TOKEN.",
    )
    allowed_hosts: list[str] = Field(
        default=[],
        description="Host names that clients may call us by, besides the loopback ones: `name` or `name:port`.",
    )
    keys: str | None = Field(
        default=None, description="File of the API keys; unset: `keys.toml` beside the configuration."
    )
    oauth: OAuthSection = Field(
        default=OAuthSection(), description="The authorization server whose access tokens are accepted."
    )
    connections: ConnectionsSection = Field(
        default=ConnectionsSection(), description="What clients may hold, known or not."
    )
    trusted_proxies: list[str] = Field(
        default=[],
        description="Addresses or networks of proxies in front of the gateway. From them the address in "
        "`X-Forwarded-For` counts, for `connections.per_address` and for bad credentials.",
    )
    max_sessions: Count = Field(
        default=_SERVE.max_sessions,
        description="Sessions that MCP clients of the handshake era may have open over HTTP; more are told to wait.",
    )
    session_idle: Seconds = Field(
        default=_SERVE.session_idle, description="Seconds after which a session that nobody uses ends."
    )
    sse_close_after: Seconds | None = Field(
        default=_SERVE.sse_close_after,
        description="Seconds after which the event stream of a request is closed, for its client to come back for the "
        "rest (clients of 2025-11-25, which know how). Set it below the time for which a proxy in front of the gateway "
        "keeps a connection open.",
    )
