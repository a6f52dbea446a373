"""The internal form of every setting.

Whatever a person wrote, and wherever, becomes part of a frozen `GatewayConfig`: complete, checked, with `${VAR}`
expanded and paths made absolute. Times are seconds, sizes are bytes, lengths of id lists are tokens. The packages above
take the part that concerns them (`UpstreamConfig`, `EngineConfig` ...) and know nothing of files, flags or the
environment. What a setting means is said once, where it can be written: in `settings.py`, in `tables.py`, and in the
classes named `...Section` beside the other records. Here are only invariants, and the reasons of defaults.
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


@dataclass(frozen=True, slots=True)
class TransportKind:
    """How configurations say that a server is reached in one way."""

    words: tuple[str, ...] = ()
    """Its names in files of other programs, in lower case and without `-` and `_`."""
    schemes: tuple[str, ...] = ()
    """The schemes of a `url` that mean it."""


TRANSPORTS: Final[Mapping[TransportName, TransportKind]] = MappingProxyType(
    {
        "stdio": TransportKind(words=("stdio",)),
        "http": TransportKind(words=("http", "streamablehttp", "sse"), schemes=("http", "https")),
        "bolt-on": TransportKind(),
    }
)


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """How to get access tokens for an upstream: the client credentials grant (OAuth 2.1, section 4.2)."""

    client_id: str
    client_secret: str
    token_url: str | None = None
    issuer: str | None = None
    scope: str | None = None


CALLBACK: Final = "/sign-in/callback"
"""Where browsers come back to the gateway from an authorization server, where each user signs in."""


@dataclass(frozen=True, slots=True)
class SignInConfig:
    """How a person signs in to an upstream: the authorization code grant (OAuth 2.1, section 4.1)."""

    issuer: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    client_metadata_url: str | None = None
    redirect_url: str | None = None
    scope: str | None = None
    resource: str | None = None
    per_user: bool = False

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
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_nothing)
    inherit_env: bool | tuple[str, ...] = ()
    cwd: Path | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=_nothing)
    client_headers: tuple[str, ...] = ()
    """Names, in lower case, of headers of a client's request that are sent along with requests made for it."""
    oauth: ClientCredentials | None = None
    auth: SignInConfig | None = None
    """None: a person may still sign in, with the defaults."""
    exchange: ExchangeConfig | None = None
    manifest: str | None = None
    """Bolt-on tools: an absolute path of a manifest or of a folder of them, or a URL."""
    endpoint: str | None = None
    require_match: bool = False
    manifest_hosts: tuple[str, ...] = ()
    """Hosts from which manifests may come and on which they may name an endpoint (`registry.allowed_hosts`)."""
    manifest_state: tuple[tuple[str, int, int], ...] = ()
    """Path, time and size of the manifests when the configuration was read: if they change, it is another upstream."""
    secrets: frozenset[str] = frozenset()
    """Values that must be masked wherever the configuration is shown: those that came from a variable or a header."""
    start: Literal["eager", "lazy"] = "eager"
    protocol: EraChoice = "auto"
    sessions: SessionPolicy = "auto"
    timeout: float | None = None
    concurrency: int = 64
    queue: int = 1024
    idle_stop: float = 0.0
    breaker_failures: int = 5
    breaker_pause: float = 5.0
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    overrides: Overrides = field(default_factory=dict[str, ToolOverride])
    """What clients see of its tools instead of what it says, by its own tool names."""
    pin: PinPolicy = "warn"
    ids: WantedIds = "any"
    results: ResultForm = "as_sent"
    client_sessions: int | None = None

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
        if self.url is None:
            return "stdio"
        scheme = self.url.partition(":")[0].lower()
        for name, kind in TRANSPORTS.items():
            if scheme in kind.schemes:
                return name
        return "http"


CHATML: Final = "chatml"
"""The chat template that llama.cpp has a name for."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The engine that generates."""

    kind: Literal["none", "embedded", "url"] = "none"
    url: str | None = None
    """Base URL of the server; set exactly when `kind` is `url`."""
    api: Literal["auto", "llama_cpp", "vllm"] = "auto"
    served_model: str | None = None
    at_once: int = 32
    api_key: str | None = None
    model: Path | None = None
    """GGUF file: what the embedded engine loads, and where `map = "auto"` looks (the packaged SmolLM2 when unset)."""
    chat_template: str | None = None
    context: int = 8192
    slots: int = 2
    threads: int = 0
    """0: one less than there are cores, to leave one for the gateway and its tools."""
    start_timeout: float = 600.0
    """Tens of gigabytes from a slow disk take minutes to load."""
    idle_timeout: float = 60.0
    exclusive: bool = False
    own_slots: str | None = None
    cache_mib: int | None = None
    slot_files: str = "auto"
    slot_files_bytes: int | None = None
    isolate: bool = False
    prefill: Literal["auto", "off"] = "auto"
    hold_calls: bool = False
    tool_format: str = "auto"
    reasoning: Literal["template", "keep"] = "template"
    volatile: tuple[str, ...] = (r"x-anthropic-billing-header:[^\n]*\n?",)
    aliases: tuple[str, ...] = ()

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
    tools: tuple[str, ...] = ()
    overrides: Overrides = field(default_factory=dict[str, ToolOverride])
    """What clients see of its tools here, by public names."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """How /v1 answers."""

    show_calls: bool = False
    defer_client_tools: Literal["auto", "never", "always"] = "auto"
    suggested_tools: int = 3
    result_files: Path | None = None


@dataclass(frozen=True, slots=True)
class TokensConfig:
    """Which maps are accepted, and how far ids from outside are trusted (docs/architecture.md, "Rules")."""

    map: str | None = "auto"
    """Path of the session map, `auto` (built from the engine's own model), or None: text only."""
    maps: tuple[Path, ...] = ()
    verify: VerifyLevel = "verify"
    min_text_length: int = 0


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    """Bounds on a turn and on the proxy. Reaching one leads to a normal answer, not to a cut connection."""

    turns: int = 32
    """Research tasks make twenty calls and more; `repeated_calls` stops a model that only repeats itself."""
    repeated_calls: int = 2
    tool_timeout: float = 60.0
    """The default of the official SDKs."""
    tool_timeout_max: float = 3600.0
    """An hour, as much as Cline and Roo Code let their users choose."""
    result_tokens: int = 2048
    mcp_result_characters: int = 0
    kept_result_bytes: int = 64 * 1024 * 1024
    kept_result_seconds: float = 3600.0
    result_bytes: int = 16 * 1024 * 1024
    completion_tokens: int = 32_768
    """Reasoning and long files need many, and engines themselves go on until the context is full."""
    start_timeout: float = 60.0
    list_wait: float = 8.0
    """Many clients list once and ignore `list_changed`, and `npx` or `uvx` needs some seconds; Codex gives a server
    10 s to start."""
    restart_backoff: float = 0.5
    restart_backoff_max: float = 30.0
    drain: float = 10.0
    body_bytes: int = 32 * 1024 * 1024
    """Agents send pictures with every request; as much as Anthropic's API takes."""
    memory_bytes: int = 64 * 1024 * 1024
    responses_bytes: int = 64 * 1024 * 1024
    responses_ttl: float = 24 * 3600.0
    principal_share: float = 0.25


@dataclass(frozen=True, slots=True)
class ServeConfig:
    """Where the endpoints and the admin port listen, and who may call."""

    host: str = "127.0.0.1"
    port: int = 8600
    admin_host: str = "127.0.0.1"
    admin_port: int = 8601
    workers: int | Literal["auto"] = 1
    token: str | None = None
    allowed_hosts: tuple[str, ...] = ()
    cors_origins: tuple[str, ...] = ()
    keys: Path | None = None
    """File of the API keys; it need not exist. None: keys are not looked for."""
    oauth: OAuthConfig | None = None
    """The authorization server whose access tokens are accepted; None: no access token is."""
    connections: ConnectionsConfig = field(default_factory=ConnectionsConfig)
    trusted_proxies: tuple[str, ...] = ()
    max_sessions: int = 1000
    session_idle: float = 1800.0
    sse_close_after: float | None = None


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
    separator: str = "__"
    prefix: PrefixPolicy = "auto"
    tool_search: bool | Literal["auto"] = "auto"
    safe_names: bool | Literal["auto"] = "auto"
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
