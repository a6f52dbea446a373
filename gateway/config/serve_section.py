"""`[serve]` and `[serve.connections]`: their keys, bounds and descriptions.

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
        default=_CONNECTIONS.total,
        description="Connections of clients that may be open at a time; any further one gets 503.",
    )
    per_address: Count = Field(
        default=_CONNECTIONS.per_address,
        description="Connections from one address (for IPv6: from one /64) that may be open at a time. Behind a "
        "proxy, see `serve.trusted_proxies`.",
    )
    head_bytes: Annotated[int, Field(ge=1024)] = Field(
        default=_CONNECTIONS.head_bytes,
        description="Largest head of a request (its request line and headers) in bytes; a larger one gets 431.",
    )
    head_fields: Count = Field(
        default=_CONNECTIONS.head_fields, description="Most headers that a request may have; with more it gets 431."
    )
    head_timeout: Seconds = Field(
        default=_CONNECTIONS.head_timeout,
        description="Seconds in which the head of a request must arrive, counted from its first byte, or from the "
        "opening of a new connection.",
    )
    body_timeout: Seconds = Field(
        default=_CONNECTIONS.body_timeout, description="Longest pause in the middle of a request's body, in seconds."
    )
    idle_timeout: Seconds = Field(
        default=_CONNECTIONS.idle_timeout,
        description="Longest pause between two requests on a connection, in seconds. A proxy in front of the "
        "gateway needs a shorter one.",
    )
    write_timeout: Seconds = Field(
        default=_CONNECTIONS.write_timeout,
        description="Seconds for which a client may read nothing of what is sent to it before its connection is ended.",
    )


class ServeSection(Section):
    """`[serve]`."""

    host: str = Field(
        default=_SERVE.host,
        description="Address on which `/mcp` and `/v1` are served. Beyond loopback a token is required.",
    )
    port: Port = Field(default=_SERVE.port, description="Port of `/mcp` and `/v1`; 0: any free port.")
    admin_host: str = Field(
        default=_SERVE.admin_host,
        description="Address on which `/metrics` and `/healthz` are served; they need no key.",
    )
    admin_port: Port = Field(
        default=_SERVE.admin_port, description="Port of `/metrics` and `/healthz`; 0: any free port."
    )
    workers: Literal["auto"] | Annotated[int, Field(ge=1, le=MOST_WORKERS)] = Field(
        default=_SERVE.workers,
        description="Number of processes that serve on the same ports, or `auto`: one for each core that the "
        "gateway may use ([how](scale.md)).",
    )
    token: str | None = Field(
        default=_SERVE.token,
        min_length=8,
        description="Bearer token that every client must send. Best set as CODEC_GATEWAY_TOKEN.",
    )
    allowed_hosts: list[str] = Field(
        default=[],
        description="Host names by which clients may reach the gateway, besides those of loopback: `name` or "
        "`name:port`.",
    )
    cors_origins: list[str] = Field(
        default=[],
        description="Origins of web pages that may call `/mcp` and `/v1` from a browser (CORS), such as "
        "`http://localhost:6274` for the MCP Inspector: `http://HOST`, `https://HOST` or with `:PORT`. "
        "They need a credential like any other client.",
    )
    keys: str | None = Field(
        default=None, description="File with the API keys; unset: `keys.toml` beside the configuration."
    )
    oauth: OAuthSection = Field(
        default=OAuthSection(), description="The authorization server whose access tokens are accepted."
    )
    connections: ConnectionsSection = Field(
        default=ConnectionsSection(), description="What clients may hold, known or not."
    )
    trusted_proxies: list[str] = Field(
        default=[],
        description="Addresses or networks of proxies in front of the gateway. For requests from these, the "
        "client's address is taken from `X-Forwarded-For`; it counts for `connections.per_address` "
        "and for the limit on bad credentials.",
    )
    max_sessions: Count = Field(
        default=_SERVE.max_sessions,
        description="Sessions that MCP clients of the handshake era may have open over HTTP at a time; further "
        "clients are told to wait.",
    )
    session_idle: Seconds = Field(
        default=_SERVE.session_idle, description="Seconds after which a session that nobody uses is ended."
    )
    sse_close_after: Seconds | None = Field(
        default=_SERVE.sse_close_after,
        description="Seconds after which the event stream of a request is closed, so that its client reconnects "
        "for the rest; only clients of 2025-11-25, which can do so, are affected. Set it below the "
        "time after which a proxy in front of the gateway closes connections. Unset: streams stay "
        "open.",
    )
