"""The internal form of every setting.

Whatever a person wrote, and wherever, becomes part of a frozen `GatewayConfig`: complete, checked, with `${VAR}`
expanded and paths made absolute. Times are seconds, sizes are bytes, lengths of id lists are tokens. The packages above
take the part that concerns them (`UpstreamConfig`, `EngineConfig` ...) and know nothing of files, flags or the
environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import urlencode

from gateway.config.access import (
    AuditConfig,
    ConnectionsConfig,
    ConsoleConfig,
    ExchangeConfig,
    OAuthConfig,
    TelemetryConfig,
    TrajectoriesConfig,
)
from gateway.config.overrides import ApprovalsConfig, Overrides, ToolOverride
from gateway.config.replicas import ReplicasConfig, SharedConfig, WorkerConfig
from gateway.config.wire import WireConfig

VerifyLevel = Literal["verify", "trust"]
EraChoice = Literal["auto", "handshake", "modern"]
SessionPolicy = Literal["auto", "shared", "per_client"]
PrefixPolicy = Literal["auto", "always", "never"]
PinPolicy = Literal["off", "warn", "block"]
WantedIds = Literal["any", "map", "packed"]
ResultForm = Literal["as_sent", "minified", "table"]
TransportName = Literal["stdio", "http", "bolt-on"]


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """How to get access tokens for an upstream: the client credentials grant (OAuth 2.1, section 4.2)."""

    client_id: str
    client_secret: str
    token_url: str | None = None
    """The token endpoint; None: it is found through the upstream's metadata."""
    issuer: str | None = None
    """The authorization server that issued them, and the only one that gets them; None: the one the upstream names."""
    scope: str | None = None


CALLBACK: Final = "/sign-in/callback"
"""Where browsers come back to the gateway from an authorization server, where each user signs in."""


@dataclass(frozen=True, slots=True)
class SignInConfig:
    """How a person signs in to an upstream: the authorization code grant (OAuth 2.1, section 4.1)."""

    issuer: str | None = None
    """The authorization server, and the only one that gets the client's id and secret; None: the upstream names it."""
    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    """The client id where the authorization server reads client metadata documents."""
    redirect_url: str | None = None
    """None: a loopback address with a free port."""
    scope: str | None = None
    resource: str | None = None
    """The upstream's name in requests for tokens (RFC 8707); None: its own, "": none is sent."""
    per_user: bool = False
    """Whether each principal has a sign-in of its own; `redirect_url` is an address of this gateway then."""

    def user_page(self, server: str) -> str:
        """Where a user signs in to the server: a page of this gateway, the same for everybody."""
        return f"{(self.redirect_url or '').rpartition('/')[0]}?{urlencode({'server': server})}"


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """One server behind the gateway: a command to run (stdio), a URL to reach (Streamable HTTP), or bolt-on tools.

    Exactly one of `command`, `url` and `manifest` is set.
    """

    name: str
    """Its key in the configuration; also the prefix of its tools."""
    command: str | None = None
    """Program to run."""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_nothing)
    """Added to the variables that a child inherits."""
    inherit_env: bool | tuple[str, ...] = ()
    """Names and patterns of more variables to inherit than usual (`programs.py`); true: all; false: only the few that
    a program needs to run."""
    cwd: Path | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=_nothing)
    client_headers: tuple[str, ...] = ()
    """Names, in lower case, of headers of a client's request that are sent along with requests made for it."""
    oauth: ClientCredentials | None = None
    auth: SignInConfig | None = None
    """None: a person may still sign in, with the defaults."""
    exchange: ExchangeConfig | None = None
    """How callers' access tokens are exchanged for its own; None: they are not."""
    manifest: str | None = None
    """Bolt-on tools: an absolute path of a manifest or of a folder of them, or a URL."""
    endpoint: str | None = None
    """Where bolt-ons take calls, whatever their manifests say: `http(s)://...` or `unix:/path`."""
    require_match: bool = False
    """Whether a bolt-on without ids for an accepted map is refused, rather than called with text."""
    manifest_hosts: tuple[str, ...] = ()
    """Hosts from which manifests may come and on which they may name an endpoint (`registry.allowed_hosts`)."""
    manifest_state: tuple[tuple[str, int, int], ...] = ()
    """Path, time and size of the manifests when the configuration was read: if they change, it is another upstream."""
    secrets: frozenset[str] = frozenset()
    """Values that must be masked wherever the configuration is shown: those that came from a variable or a header."""
    start: Literal["eager", "lazy"] = "eager"
    """`lazy`: started when it is first needed."""
    protocol: EraChoice = "auto"
    """Which era to speak; `auto`: the modern one if the server offers it."""
    sessions: SessionPolicy = "auto"
    """Whether clients of the handshake era share one session; `auto`: those that can't be asked anything do."""
    timeout: float | None = None
    """Seconds that one call may take; None: `limits.tool_timeout`."""
    concurrency: int = 64
    """Calls that run at a time; more wait."""
    queue: int = 1024
    """Calls that may wait; more are refused at once."""
    idle_stop: float = 0.0
    """Seconds without a call after which it is stopped until it is needed again; 0: never."""
    breaker_failures: int = 5
    """Failures in a row (silence, broken connections) after which calls are refused for a while; 0: never."""
    breaker_pause: float = 5.0
    """Seconds until one call may try again."""
    include: tuple[str, ...] = ()
    """Patterns of its own names (tools, prompts) and resource URIs that are offered; empty: all."""
    exclude: tuple[str, ...] = ()
    """Patterns that are not offered, even if included."""
    overrides: Overrides = field(default_factory=dict[str, ToolOverride])
    """What clients see of its tools instead of what it says, by its own tool names."""
    pin: PinPolicy = "warn"
    """What happens when a tool's definition is not the one first seen."""
    ids: WantedIds = "any"
    """What a call for a client that reads ids tells the tool: nothing, the map, or also that ids may be packed."""
    results: ResultForm = "as_sent"
    """How a model on /v1 reads its results that are JSON."""
    client_sessions: int | None = None
    """Sessions besides the main one, for clients that have their own; None: 64 if each is a process, else 1,000."""

    def runs_like(self, other: "UpstreamConfig") -> bool:
        """Whether a server that runs with this configuration need not be started again for the other one."""
        return replace(self, overrides=other.overrides, results=other.results) == other

    @property
    def is_per_user(self) -> bool:
        """Whether each principal is itself there, with sessions and lists of its own."""
        return self.exchange is not None or self.has_user_pages

    @property
    def has_user_pages(self) -> bool:
        """Whether each principal signs in there for itself, at a page of this gateway."""
        return self.auth is not None and self.auth.per_user

    @property
    def most_client_sessions(self) -> int:
        """`client_sessions`, or its default."""
        if self.client_sessions is not None:
            return self.client_sessions
        return 64 if self.command is not None else 1000

    @property
    def transport(self) -> TransportName:
        """How the server is reached."""
        if self.manifest is not None:
            return "bolt-on"
        return "stdio" if self.command is not None else "http"


CHATML: Final = "chatml"
"""The chat template that llama.cpp has a name for."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The engine that generates."""

    kind: Literal["none", "embedded", "url"] = "none"
    url: str | None = None
    """Base URL of the server; set exactly when `kind` is `url`."""
    api: Literal["auto", "llama_cpp", "vllm"] = "auto"
    """Which API the server at `url` speaks; `auto`: found out from its answers."""
    served_model: str | None = None
    """The name by which a vLLM server is asked for its model, or for one of its LoRA adapters; None: its first."""
    at_once: int = 32
    """Generations that run at a time on a server that does not say how many it takes."""
    api_key: str | None = None
    model: Path | None = None
    """GGUF file: what the embedded engine loads, and where `map = "auto"` looks (the packaged SmolLM2 when unset)."""
    chat_template: str | None = None
    """Chat template of the embedded engine instead of the model's own: the path of a file, or `chatml`."""
    context: int = 8192
    """Tokens of context of the embedded engine, shared by its slots."""
    slots: int = 2
    threads: int = 0
    """Threads of the embedded engine; 0: one less than there are cores, to leave one for the gateway and its tools."""
    start_timeout: float = 600.0
    """Time for loading a model: tens of gigabytes from a slow disk take minutes."""
    idle_timeout: float = 60.0
    """Longest silence of a stream before the engine counts as away."""
    exclusive: bool = False
    """Whether only one gateway generates with the server at `url`: then that gateway may choose the server's slots."""
    own_slots: str | None = None
    """FIRST-LAST: the slots of the server at `url` that are this gateway's alone, if several share the server."""
    cache_mib: int | None = None
    """Mebibytes in which the embedded engine keeps what its slots held; 0: none, None: it depends on free memory."""
    slot_files: str = "auto"
    """Where an engine that is the gateway's alone keeps what its slots held. `auto`: with the embedded engine, in a
    directory in memory for this process; `off`: in no files; otherwise the path of a directory that is kept."""
    slot_files_bytes: int | None = None
    """Bytes of all slot files; None: as many as the host cache would have."""
    isolate: bool = False
    """Whether a principal's prompt is never processed faster because of another's: embedded engine, or vLLM."""
    prefill: Literal["auto", "off"] = "auto"
    """Whether the template's ids before a result are processed while the tool works, if that gains something."""
    hold_calls: bool = False
    """Whether a grammar also constrains calls that a model makes by its own choice, from the token with which they
    begin: for models with such a token, and servers whose grammars know tokens (llama.cpp since December 2025)."""
    tool_format: str = "auto"
    """The format in which the model's calls are read (docs/tool-formats.md); `auto`: by its chat template."""
    reasoning: Literal["template", "keep"] = "template"
    """Whether the chat template decides about the reasoning of earlier turns, or is told to keep it if it can be."""
    volatile: tuple[str, ...] = (r"x-anthropic-billing-header:[^\n]*\n?",)
    """Regular expressions for parts to cut out of system messages, because they change from session to session."""
    aliases: tuple[str, ...] = ()
    """Names by which clients may ask for its model, besides the engine's own."""

    @property
    def slot_range(self) -> range | None:
        """`own_slots` as numbers; None if it is not set."""
        if self.own_slots is None:
            return None
        first, last = map(int, self.own_slots.split("-"))
        return range(first, last + 1)


@dataclass(frozen=True, slots=True)
class ViewConfig:
    """A part of the gateway that is served at `/mcp/NAME`."""

    servers: tuple[str, ...] = ()
    """Names of its servers; empty: all."""
    tools: tuple[str, ...] = ()
    """Patterns of the public names of its tools; empty: all of its servers."""
    overrides: Overrides = field(default_factory=dict[str, ToolOverride])
    """What clients see of its tools here, by public names."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """How /v1 answers."""

    show_calls: bool = False
    """Whether calls that the gateway runs itself are also shown as `tool_calls`; many clients would run them again."""
    defer_client_tools: Literal["auto", "never", "always"] = "auto"
    """Whether the model searches for the tools of clients that defer none: `auto`, if their definitions are heavy."""
    suggested_tools: int = 3
    """How many deferred tools that fit a user message best are defined in front of it, where the gateway searches."""
    result_files: Path | None = None
    """Folder for kept results that memory has no room for; None: the oldest are dropped."""


@dataclass(frozen=True, slots=True)
class TokensConfig:
    """Which maps are accepted, and how far ids from outside are trusted (docs/architecture.md, "Rules")."""

    map: str | None = "auto"
    """Path of the session map, `auto` (built from the engine's own model), or None: text only."""
    maps: tuple[Path, ...] = ()
    """More accepted maps, each proven equal to the engine's tokenizer at start."""
    verify: VerifyLevel = "verify"
    """`verify`: leaf ids must decode to their text. `trust`: shape, range and special ids only."""
    min_text_length: int = 0
    """Characters below which a text block of a result gets no ids on `/mcp`."""


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Bounds on a turn and on the proxy. Reaching one leads to a normal answer, not to a cut connection."""

    turns: int = 32
    """Generations per request, the first included. Research tasks make twenty calls and more; a model that only repeats
    itself is stopped by `repeated_calls`."""
    repeated_calls: int = 2
    """Turns in a row that may make the same calls with the same results before the model is told, and, with one more,
    has to answer in words; 0: it may go on."""
    tool_timeout: float = 60.0
    """Time of a tool call, the default of the official SDKs; each report of progress grants it anew."""
    tool_timeout_max: float = 3600.0
    """Time of a call that keeps reporting progress. An hour, as much as Cline and Roo Code let their users choose."""
    result_tokens: int = 2048
    """Ids of one tool result that reach the model at once; a longer one is kept for it to read on, or else cut."""
    mcp_result_characters: int = 0
    """Characters of a result's texts for MCP clients that name no limit of their own; 0: all."""
    kept_result_bytes: int = 64 * 1024 * 1024
    """Memory for the ids of such results; 0: none is kept."""
    kept_result_seconds: float = 3600.0
    """Time without use after which one is no longer kept."""
    result_bytes: int = 16 * 1024 * 1024
    """Largest answer of an upstream, as it is sent."""
    completion_tokens: int = 32_768
    """Generated ids per request when the client names no limit. Reasoning and long files need many, and engines
    themselves go on until the context is full."""
    start_timeout: float = 60.0
    """Time for an upstream to start and list its tools."""
    list_wait: float = 8.0
    """Time that the first lists wait for an upstream that is starting, if nothing is kept of it. Many clients list once
    and ignore `list_changed`, and `npx` or `uvx` needs some seconds; Codex gives a server 10 s to start."""
    restart_backoff: float = 0.5
    """First pause before a dead upstream is started again; doubles up to `restart_backoff_max`, with jitter."""
    restart_backoff_max: float = 30.0
    drain: float = 10.0
    """Time that running requests get when the gateway is asked to stop."""
    body_bytes: int = 32 * 1024 * 1024
    """Agents send pictures with every request; as much as Anthropic's API takes."""
    memory_bytes: int = 64 * 1024 * 1024
    """Size of all conversations that are remembered for their next requests."""
    responses_bytes: int = 64 * 1024 * 1024
    """Size of all stored answers of `/v1/responses`."""
    responses_ttl: float = 24 * 3600.0
    """Time for which a stored answer is kept that nobody uses."""
    principal_share: float = 0.25
    """The part that one key or subject may take of each bound: on sessions, on calls and generations that wait, on
    subscriptions and processes."""


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Where the endpoints and the admin port listen, and who may call."""

    host: str = "127.0.0.1"
    port: int = 8600
    admin_host: str = "127.0.0.1"
    admin_port: int = 8601
    workers: int | Literal["auto"] = 1
    """Processes that serve; `auto`: one for each core that this process may use."""
    token: str | None = None
    """Bearer token that every client must send; required beyond loopback."""
    allowed_hosts: tuple[str, ...] = ()
    """Host headers accepted besides the loopback names (DNS rebinding)."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call `/mcp` and `/v1` from a browser."""
    keys: Path | None = None
    """File of the API keys; it need not exist. None: keys are not looked for."""
    oauth: OAuthConfig | None = None
    """The authorization server whose access tokens are accepted; None: no access token is."""
    connections: ConnectionsConfig = field(default_factory=ConnectionsConfig)
    trusted_proxies: tuple[str, ...] = ()
    """Networks of proxies that may name their client in `X-Forwarded-For`."""
    max_sessions: int = 1000
    """Sessions of handshake-era MCP clients over HTTP that may be open at a time."""
    session_idle: float = 1800.0
    """Time without use after which such a session ends."""
    sse_close_after: float | None = None
    """Time after which the event stream of a request is closed, for its client to come back; None: it stays open."""


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """All settings of one gateway process."""

    upstreams: tuple[UpstreamConfig, ...] = ()
    engine: EngineConfig = EngineConfig()
    engines: Mapping[str, EngineConfig] = field(default_factory=_nothing)
    """The engines of a pool, by name; if there are any, `engine` is `none`."""
    agent: AgentConfig = AgentConfig()
    tokens: TokensConfig = TokensConfig()
    limits: LimitsConfig = LimitsConfig()
    serve: ServeConfig = ServeConfig()
    wire: WireConfig = field(default_factory=WireConfig)
    approvals: ApprovalsConfig = field(default_factory=ApprovalsConfig)
    audit: AuditConfig = field(default_factory=AuditConfig)
    trajectories: TrajectoriesConfig = field(default_factory=TrajectoriesConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    replicas: ReplicasConfig = field(default_factory=ReplicasConfig)
    shared: SharedConfig = field(default_factory=SharedConfig)
    console: ConsoleConfig = field(default_factory=ConsoleConfig)
    worker: WorkerConfig | None = None
    """Which of several processes on one machine this is; None: it is the only one, or their parent."""
    views: Mapping[str, ViewConfig] = field(default_factory=_nothing)
    """Parts of the gateway by name, each served at `/mcp/NAME`."""
    separator: str = "__"
    """Stands between server and tool in a public tool name."""
    prefix: PrefixPolicy = "auto"
    """Whether public names begin with their server; `auto`: unless there is only one."""
    tool_search: bool | Literal["auto"] = "auto"
    """Whether two tools that find and call all others are offered in their place; `auto`: only on `/v1`, if the
    definitions of all would take too much of the context."""
    safe_names: bool | Literal["auto"] = "auto"
    """Whether tools whose names model APIs refuse are offered under aliases; `auto`: only on `/v1`."""
    files: tuple[Path, ...] = ()
    """Files that were read, and are to be read again when they change."""
    warnings: tuple[str, ...] = ()
    """What the readers noticed that is not an error, one sentence each."""

    @property
    def members(self) -> Mapping[str, EngineConfig]:
        """The engines by name: those of a pool, or else the single one, even if it is `none`."""
        return self.engines or {"engine": self.engine}

    @property
    def has_engine(self) -> bool:
        """Whether anything generates."""
        return bool(self.engines) or self.engine.kind != "none"
