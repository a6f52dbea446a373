"""The settings of one MCP server, and of bolt-on tools: what they are called, what they may hold, and what they mean.

Defaults come from `model.py`, so that they stand once; the words here are what docs/configure.md shows. It reads
nothing.
"""

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.model import EraChoice, PinPolicy, SessionPolicy, UpstreamConfig, WantedIds
from gateway.config.section import Count, CountOrZero, Seconds, Section

_UPSTREAM = UpstreamConfig("")


class CredentialsSection(Section):
    """`[upstreams.NAME.oauth]`: our own credentials with the server's authorization server (OAuth 2.1, section 4.2)."""

    client_id: str = Field(description="Who we are there.")
    client_secret: str = Field(description="The secret; best as `${env:NAME}`.")
    token_url: str | None = Field(
        default=None, description="Its token endpoint; unset: found by the server's own metadata (RFC 9728, RFC 8414)."
    )
    issuer: str | None = Field(
        default=None,
        description="The authorization server that issued them: they are sent to no other, whatever the server says. "
        "Set it where `token_url` is not.",
    )
    scope: str | None = Field(default=None, description="Scopes to ask for, separated by blanks.")


class UpstreamSection(Section):
    """`[upstreams.NAME]`: `command` (stdio), `url` (Streamable HTTP) or `manifest` (bolt-on tools)."""

    command: str | None = Field(default=None, description="Program to run.")
    args: list[str] = Field(default=[], description="Its arguments.")
    env: dict[str, str] = Field(default={}, description="Environment variables it gets beside HOME, PATH and the like.")
    cwd: str | None = Field(default=None, description="Folder it runs in; unset: the gateway's own.")
    url: str | None = Field(default=None, description="Address of a server that speaks Streamable HTTP.")
    headers: dict[str, str] = Field(
        default={},
        description="Headers sent with every request to `url`, or to the `endpoint` that stands here.",
    )
    manifest: str | None = Field(
        default=None,
        description="Bolt-on tools: the path of a manifest or of a folder of them, or a URL whose host is in "
        "`registry.allowed_hosts`. Files are watched; a URL is read again on SIGHUP, or when another file of the "
        "configuration changed.",
    )
    endpoint: str | None = Field(
        default=None,
        description="Where these bolt-ons take calls: `http://HOST:PORT`, `https://HOST` or `unix:/path/to/socket`; "
        "unset: where each manifest says.",
    )
    require_match: bool = Field(
        default=_UPSTREAM.require_match,
        description="`true`: a bolt-on without ids for an accepted map is refused; `false`: it is called with text.",
    )
    oauth: CredentialsSection | None = Field(
        default=None, description="How to get access tokens for `url`, where it asks for them."
    )
    disabled: bool = Field(default=False, description="`true`: this entry is ignored.")
    start: Literal["eager", "lazy"] = Field(
        default=_UPSTREAM.start, description="`eager`: with the gateway. `lazy`: when somebody first needs it."
    )
    protocol: EraChoice = Field(
        default=_UPSTREAM.protocol,
        description="`auto`: 2026-07-28 where the server offers it, else the handshake of 2024 and 2025; `modern` or "
        "`handshake`: only that.",
    )
    sessions: SessionPolicy = Field(
        default=_UPSTREAM.sessions,
        description="Whether clients share one session with it. `auto`: a client of the handshake era that can be "
        "asked (roots, sampling, elicitation) has its own from its first tool call on, or from when it names what no "
        "list shows to all; `shared`: one for all; `per_client`: each has its own, and what it left there, "
        "until its session ends. Lists alone open none.",
    )
    timeout: Seconds | None = Field(
        default=_UPSTREAM.timeout, description="Seconds that one call may take; unset: `limits.tool_timeout`."
    )
    concurrency: Count = Field(default=_UPSTREAM.concurrency, description="Calls that run at a time; more wait.")
    queue: CountOrZero = Field(default=_UPSTREAM.queue, description="Calls that may wait; more are refused at once.")
    idle_stop: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=_UPSTREAM.idle_stop,
        description="Seconds without a call after which it is stopped, until it is needed again; 0: never.",
    )
    breaker_failures: CountOrZero = Field(
        default=_UPSTREAM.breaker_failures,
        description="Calls in a row without an answer after which it is left alone for a while; 0: never.",
    )
    breaker_pause: Seconds = Field(
        default=_UPSTREAM.breaker_pause, description="Seconds until one call may try it again."
    )
    include: list[str] = Field(
        default=[],
        description="Patterns (`*`, `?`) of its own tool and prompt names and resource URIs that clients see; empty: "
        "all.",
    )
    exclude: list[str] = Field(default=[], description="Patterns that clients don't see, even if included.")
    rename: dict[str, str] = Field(
        default={},
        description="Its own tool name to the name that clients see, whole, without a prefix, and printable.",
    )
    describe: dict[str, str] = Field(
        default={}, description="Its own tool name to the description that clients see instead of the server's."
    )
    pin: PinPolicy = Field(
        default=_UPSTREAM.pin,
        description="What happens when a tool's definition is not the one first seen: `off`, `warn` (told in the log "
        "and by `status`) or `block` (the tool is hidden until `codec-gateway pins accept`).",
    )
    ids: WantedIds = Field(
        default=_UPSTREAM.ids,
        description="What calls for a reader of ids tell the tool: `any`: nothing; `map`: whose map, so that a leaf of "
        "several models sends ids of this one alone; `packed`: that too, and that ids may be packed, for less bytes on "
        "an uncompressed line and more CPU. For leaves: another gateway refuses a map that it does not hold.",
    )
    client_sessions: Count | None = Field(
        default=_UPSTREAM.client_sessions,
        description="Sessions with it besides the shared one that may be open at a time, for clients that may be asked "
        "or that have their own (`sessions`); one principal may have `limits.principal_share` of them. Unset: 64 where "
        "each is a process, else 1,000.",
    )
    sampling_tokens: CountOrZero = Field(
        default=_UPSTREAM.sampling_tokens,
        description="Tokens that our own engine may generate for the server's sampling requests where the client "
        "offers no sampling; 0: none.",
    )


class RegistrySection(Section):
    """`[registry]`: bolt-on tools."""

    allowed_hosts: list[str] = Field(
        default=[],
        description="Hosts from which manifests may be fetched, and on which a manifest may name its endpoint: `name` "
        "or `name:port`. This machine may always be named by a manifest that lies on it.",
    )
