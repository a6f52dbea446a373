"""The tables of one MCP server and of `[serve]`: their keys, bounds and descriptions."""

from typing import Annotated, Final, Literal

from pydantic import Field

from gateway.config.access import ConnectionsConfig, OAuthSection
from gateway.config.gateway_config import (
    EraChoice,
    PinPolicy,
    ResultForm,
    ServeConfig,
    SessionPolicy,
    UpstreamConfig,
    WantedIds,
)
from gateway.config.overrides import OverrideSection
from gateway.config.section import Count, CountOrZero, Port, Seconds, Section

# Defaults come from `gateway_config.py`; docs/configure.md shows the descriptions from here.

_UPSTREAM = UpstreamConfig("")


class CredentialsSection(Section):
    """`[upstreams.NAME.oauth]`: credentials for the server's authorization server (OAuth 2.1, section 4.2)."""

    client_id: str = Field(description="The gateway's client id there.")
    client_secret: str = Field(description="The secret that belongs to it; best written as `${env:NAME}`.")
    token_url: str | None = Field(
        default=None,
        description="Its token endpoint; unset: found through the server's own metadata (RFC 9728, RFC 8414).",
    )
    issuer: str | None = Field(
        default=None,
        description="The authorization server that issued the credentials: they are sent to no other, whatever "
        "the server says. Set it if `token_url` is not set.",
    )
    scope: str | None = Field(default=None, description="Scopes to ask for, separated by spaces.")


class SignInSection(Section):
    """`[upstreams.NAME.auth]`: how you sign in to the server with `codec-gateway login` (OAuth 2.1, section 4.1)."""

    issuer: str | None = Field(
        default=None,
        description="The authorization server at which you sign in, whatever the server says; unset: the one that the "
        "server names. Needed for one on a private address, and for `client_id`.",
    )
    client_id: str | None = Field(
        default=None,
        description="The gateway's client id at `issuer`, if you have registered one there; unset: "
        "`client_metadata_url`, else the gateway registers itself.",
    )
    client_secret: str | None = Field(
        default=None,
        description="The secret that belongs to `client_id`, if it has one; best written as `${env:NAME}`.",
    )
    client_metadata_url: str | None = Field(
        default=None,
        description="https address of a client metadata document that you have published; it is the client id where "
        "the authorization server supports such documents.",
    )
    redirect_url: str | None = Field(
        default=None,
        description="Where the authorization server sends your browser; unset: `http://127.0.0.1:PORT/callback`, with "
        "a free port. `codec-gateway login` listens on a loopback address; for any other, paste the address at which "
        "you end.",
    )
    scope: str | None = Field(
        default=None, description="Scopes to ask for, separated by spaces; unset: those that the server names."
    )
    resource: str | None = Field(
        default=None,
        description="The name of the server in requests for tokens (RFC 8707); unset: what the server calls itself. "
        "Empty: none is sent, for authorization servers that refuse it; the tokens may then be valid elsewhere, too.",
    )
    per_user: bool = Field(
        default=False,
        description="Whether each caller with an API key or an access token of its own signs in for itself, at this "
        "gateway's page `/sign-in`; calls then never use the sign-in of `codec-gateway login`, except those of callers "
        "without such a key, as with the gateway's own token. Needs `redirect_url`: the address at which browsers "
        "reach this gateway, with the path `/sign-in/callback`.",
    )


class ExchangeSection(Section):
    """`[upstreams.NAME.exchange]`: how a caller's access token is exchanged for one of the server's (RFC 8693)."""

    client_id: str = Field(description="The gateway's client id at the authorization server.")
    client_secret: str | None = Field(
        default=None, description="The secret that belongs to it; best written as `${env:NAME}`."
    )
    issuer: str | None = Field(
        default=None,
        description="The authorization server that exchanges callers' tokens: they go to no other. Needed, unless "
        "`token_url` is set.",
    )
    token_url: str | None = Field(
        default=None, description="Its token endpoint; unset: the one in the metadata of `issuer` (RFC 8414)."
    )
    audience: str | None = Field(
        default=None,
        description="The server's name at the authorization server, as the client id of the server; unset: none is "
        "sent.",
    )
    resource: str | None = Field(
        default=None,
        description="The server's address in requests for tokens (RFC 8707); unset: its `url`. Empty: none is sent.",
    )
    scope: str | None = Field(default=None, description="Scopes to ask for, separated by spaces.")
    subject_token_type: str | None = Field(
        default=None,
        description="What the authorization server calls callers' tokens, where it wants a name of its own (Auth0); "
        "unset: `urn:ietf:params:oauth:token-type:access_token`.",
    )


class UpstreamSection(Section):
    """`[upstreams.NAME]`: `command` (stdio), `url` (Streamable HTTP) or `manifest` (bolt-on tools)."""

    command: str | None = Field(default=None, description="Program to run.")
    args: list[str] = Field(default=[], description="Its arguments.")
    env: dict[str, str] = Field(
        default={}, description="Environment variables that it gets, besides those that it inherits."
    )
    inherit_env: bool | list[str] = Field(
        default=[],
        description="Variables of the gateway's own environment that it inherits, as names or patterns (`*`, `?`), "
        "besides HOME, PATH and the like, and those for proxies and certificates (`HTTPS_PROXY`, "
        "`NO_PROXY`, `SSL_CERT_FILE`, `NODE_EXTRA_CA_CERTS` and others). `true`: all; `false`: none for "
        "proxies and certificates either. The gateway's own (`CODEC_...`) only by their whole names.",
    )
    cwd: str | None = Field(default=None, description="Folder in which it runs; unset: the gateway's own.")
    url: str | None = Field(default=None, description="Address of a server that speaks Streamable HTTP.")
    headers: dict[str, str] = Field(
        default={},
        description="Headers sent with every request to `url`, or to the `endpoint` that is set here.",
    )
    client_headers: list[str] = Field(
        default=[],
        description="Names of headers of a client's request, to `/mcp` or `/v1`, that are sent to `url` with the "
        "requests made for it. Never `Authorization` or `Cookie`: for credentials of users there are `auth.per_user` "
        "and `exchange`.",
    )
    manifest: str | None = Field(
        default=None,
        description="Bolt-on tools: the path of a manifest or of a folder of manifests, or a URL whose host is in "
        "`registry.allowed_hosts`. Files are watched for changes; a URL is read again on SIGHUP, or "
        "when another file of the configuration changes.",
    )
    endpoint: str | None = Field(
        default=None,
        description="Address at which these bolt-ons take calls: `http://HOST:PORT`, `https://HOST` or "
        "`unix:/path/to/socket`; unset: the one in each manifest.",
    )
    require_match: bool = Field(
        default=_UPSTREAM.require_match,
        description="`true`: a bolt-on that has no ids for an accepted map is refused; `false`: it is called with "
        "text.",
    )
    oauth: CredentialsSection | None = Field(
        default=None, description="How to get access tokens for `url`, where it asks for them."
    )
    auth: SignInSection | None = Field(
        default=None,
        description="How you sign in to `url`, where the defaults of `codec-gateway login` do not suffice.",
    )
    exchange: ExchangeSection | None = Field(
        default=None,
        description="How the access token with which a caller came (`serve.oauth`) is exchanged for one of `url`.",
    )
    disabled: bool = Field(default=False, description="`true`: this entry is ignored.")
    start: Literal["eager", "lazy"] = Field(
        default=_UPSTREAM.start,
        description="When the server is started. `eager`: with the gateway; `lazy`: when it is first needed.",
    )
    protocol: EraChoice = Field(
        default=_UPSTREAM.protocol,
        description="Which era of MCP to speak. `auto`: 2026-07-28 if the server offers it, otherwise the "
        "handshake of 2024 and 2025; `modern` or `handshake`: only that one.",
    )
    sessions: SessionPolicy = Field(
        default=_UPSTREAM.sessions,
        description="Whether clients share one session with the server. `shared`: all do. `per_client`: each "
        "client has a session of its own, with its own state at the server, until the client's "
        "session ends. `auto`: a client of the handshake era that the server can ask something "
        "(roots, sampling, elicitation) gets its own with its first tool call, or when it first names "
        "something that is not in the lists that all clients see; the others share one. Asking for "
        "lists alone opens none.",
    )
    timeout: Seconds | None = Field(
        default=_UPSTREAM.timeout,
        description="Seconds that one call may take, in place of `limits.tool_timeout`.",
    )
    concurrency: Count = Field(
        default=_UPSTREAM.concurrency, description="Calls that may run at a time; further ones wait."
    )
    queue: CountOrZero = Field(
        default=_UPSTREAM.queue, description="Calls that may wait; further ones are refused at once."
    )
    idle_stop: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=_UPSTREAM.idle_stop,
        description="Seconds without a call after which the server is stopped until it is needed again; 0: never.",
    )
    breaker_failures: CountOrZero = Field(
        default=_UPSTREAM.breaker_failures,
        description="Consecutive calls without an answer after which calls are refused for `breaker_pause` "
        "seconds; 0: never.",
    )
    breaker_pause: Seconds = Field(
        default=_UPSTREAM.breaker_pause, description="Seconds until one call may try the server again."
    )
    include: list[str] = Field(
        default=[],
        description="Patterns (`*`, `?`) for the tools and prompts (by the server's own names) and resource URIs "
        "that clients see; empty: all.",
    )
    exclude: list[str] = Field(
        default=[], description="Patterns for those that clients do not see, even if they are included."
    )
    overrides: dict[str, OverrideSection] = Field(default={})
    pin: PinPolicy = Field(
        default=_UPSTREAM.pin,
        description="What happens when a tool's definition is not the one first seen. `off`: nothing; `warn`: the "
        "log and `codec-gateway status` say so; `block`: the tool is hidden until `codec-gateway pins "
        "accept`.",
    )
    ids: WantedIds = Field(
        default=_UPSTREAM.ids,
        description="What a tool is told when the caller reads ids. `any`: nothing; `map`: the caller's map, so "
        "that a leaf of several models sends ids of this one only; `packed`: also that ids may be "
        "packed, which takes fewer bytes on an uncompressed connection and more CPU. `map` and "
        "`packed` are for leaves: another gateway refuses a map that it does not hold.",
    )
    results: ResultForm = Field(
        default=_UPSTREAM.results,
        description="How a model on `/v1` reads results that are JSON. `as_sent`: as the tool wrote them; `minified`: "
        "without the blanks between values; `table`: also with each list of three or more objects of equal keys as "
        '`{"columns": [...], "rows": [[...]]}`. All values stay; numbers stay as they were written. Results with token '
        "ids of their own, errors, and results of which the model sees only a part are not touched. "
        "`codec.tool_results[].saved_tokens` says what it saved.",
    )
    client_sessions: Count | None = Field(
        default=_UPSTREAM.client_sessions,
        description="Sessions with the server that may be open at a time besides the shared one, for clients that "
        "can be asked something or have a session of their own (`sessions`). One principal may have "
        "`limits.principal_share` of them. Unset: 64 if each session is a process, otherwise 1,000.",
    )


class RegistrySection(Section):
    """`[registry]`: bolt-on tools."""

    allowed_hosts: list[str] = Field(
        default=[],
        description="Hosts from which manifests may be fetched, and which a manifest may name in its endpoint: "
        "`name` or `name:port`. A manifest on this machine may always name this machine.",
    )


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
