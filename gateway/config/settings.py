"""The settings that are ours: what they are called, what they may hold, and what they mean.

Defaults come from `model.py`, so that they stand once; the words here are what docs/configure.md shows. It reads
nothing, merges nothing and checks nothing: `check_settings.py` does that.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from gateway.config.access_sections import AuditSection, TelemetrySection, TrajectoriesSection
from gateway.config.console import ConsoleSection
from gateway.config.model import (
    AgentConfig,
    EngineConfig,
    GatewayConfig,
    LimitsConfig,
    PrefixPolicy,
    TokensConfig,
    VerifyLevel,
)
from gateway.config.replicas import ReplicasSection
from gateway.config.section import Count, CountOrZero, Seconds, Section
from gateway.config.serve_section import ServeSection
from gateway.config.shared import SharedSection
from gateway.config.upstream_section import RegistrySection, UpstreamSection
from gateway.config.wire import WireSection

_ENGINE, _AGENT, _TOKENS, _LIMITS = EngineConfig(), AgentConfig(), TokensConfig(), LimitsConfig()

MAP_DEFAULT: Final = "auto"


class EngineSection(Section):
    """`[engine]`, or one word: `engine = "embedded"`, `"none"` or a URL."""

    kind: Literal["none", "embedded", "url"] = Field(
        default=_ENGINE.kind,
        description="Which engine generates: none, a llama.cpp server of our own, or the server at `url`.",
    )
    url: str | None = Field(
        default=_ENGINE.url, description="Base URL of a llama.cpp or vLLM server; sets `kind` to `url`."
    )
    api: Literal["auto", "llama_cpp", "vllm"] = Field(
        default=_ENGINE.api, description="What the server at `url` speaks; `auto`: what its own answers tell."
    )
    served_model: str | None = Field(
        default=None,
        min_length=1,
        description="Name of the model that a vLLM server is asked for, of those that its `/v1/models` lists: a LoRA "
        "adapter, for one. Unset: the first. Each of several can be an engine of its own at the same `url`.",
    )
    at_once: Count = Field(
        default=_ENGINE.at_once,
        description="Generations that run at a time on a server that does not say how many it takes: vLLM, whose "
        "`max_num_seqs` should be no less.",
    )
    api_key: str | None = Field(default=_ENGINE.api_key, description="Its API key, if it asks for one.")
    model: str | None = Field(default=None, description="GGUF file; unset: the packaged SmolLM2-135M.")
    context: Annotated[int, Field(ge=256)] = Field(
        default=_ENGINE.context, description="Context of the embedded engine in tokens, shared by its slots."
    )
    slots: Count = Field(default=_ENGINE.slots, description="Generations that the embedded engine runs at a time.")
    threads: CountOrZero = Field(
        default=_ENGINE.threads, description="Threads of the embedded engine; 0: one less than cores."
    )
    start_timeout: Seconds = Field(default=_ENGINE.start_timeout, description="Seconds the engine may take to start.")
    idle_timeout: Seconds = Field(
        default=_ENGINE.idle_timeout,
        description="Longest silence of a stream, in seconds, before the engine counts as away.",
    )
    exclusive: bool = Field(
        default=_ENGINE.exclusive,
        description="Nobody but one gateway generates with the server at `url`, or with that of `codec-gateway "
        "engine`: that gateway may choose its slots.",
    )
    own_slots: Annotated[str, Field(pattern=r"^\d{1,4}-\d{1,4}$")] | None = Field(
        default=None,
        description="Which slots of the llama.cpp server at `url` are this gateway's alone, as FIRST-LAST, counted "
        "from 0: for several gateways on one server, each with slots that no other names, while nobody else generates "
        "with it.",
    )
    cache_mib: CountOrZero | None = Field(
        default=_ENGINE.cache_mib,
        description="Mebibytes in which the embedded engine keeps what its slots held; 0: none; unset: a quarter of "
        "the memory that is free, 8192 at most.",
    )
    slot_files: str = Field(
        default=_ENGINE.slot_files,
        description="Where the embedded engine keeps what its slots held: `auto`: a directory in memory, removed with "
        "the gateway; `off`: its host cache; or the path of a directory, in which conversations survive a restart. "
        "With an `exclusive` server at `url` only a path: the one that `llama-server --slot-save-path` has.",
    )
    slot_files_bytes: CountOrZero | None = Field(
        default=_ENGINE.slot_files_bytes,
        description="Bytes of all slot files; 0: none; unset: as `cache_mib` says.",
    )
    isolate: bool = Field(
        default=_ENGINE.isolate,
        description="Reuse nothing of one principal's prompts for another: of the embedded engine, whose host cache is "
        'off then, and of vLLM (`api = "vllm"`), by salts of its prefix cache.',
    )
    prefill: Literal["auto", "off"] = Field(
        default=_ENGINE.prefill,
        description="`auto`: what the chat template writes before a tool's result is processed while the tool works, "
        "where the engine's slots are the gateway's to choose, it has nothing else to do and that gains more than two "
        "of its passes; `off`: with the result.",
    )
    hold_calls: bool = Field(
        default=_ENGINE.hold_calls,
        description="Hold the calls that a model decides on itself to their schemas, where it begins them with a "
        "special token; needs a llama.cpp of December 2025 or later, or vLLM with its xgrammar backend.",
    )
    tool_format: str = Field(
        default=_ENGINE.tool_format,
        description="Form in which the model's calls are read, by its name in docs/tool-formats.md; `auto`: by the "
        "model's chat template.",
    )
    reasoning: Literal["template", "keep"] = Field(
        default=_ENGINE.reasoning,
        description="Reasoning of earlier turns. `template`: as the engine and its chat template have it; most leave "
        "it out at the next question, and the cache from there on is lost. `keep`: shown, by the template's own switch "
        "where it has one; it takes room in the context, and not every model was trained on it.",
    )
    volatile: list[str] = Field(
        default=list(_ENGINE.volatile),
        description="Regular expressions of what is cut out of system messages before anything else, because it "
        "changes from session to session and takes the cache with it. The default is Claude Code's billing header.",
    )
    aliases: list[str] = Field(
        default=[],
        description="Names by which clients may ask for its model, besides the engine's own. They count where there "
        "are several models: one alone answers to any name.",
    )


class AgentSection(Section):
    """`[agent]`."""

    show_calls: bool = Field(
        default=_AGENT.show_calls,
        description="Tell the calls that the gateway runs as `tool_calls` too. Many clients would run them again; they "
        "stand in `codec.tool_results` in any case. A request may say otherwise in a field of the same name.",
    )


class TokensSection(Section):
    """`[tokens]`."""

    map: str = Field(
        default=MAP_DEFAULT,
        description="Session map: `auto` (built from the engine's model), `none` (text only) or a path.",
    )
    maps: list[str] = Field(
        default=[], description="Paths of more accepted maps, each proven against the engine at start."
    )
    verify: VerifyLevel = Field(
        default=_TOKENS.verify,
        description="`verify`: leaf ids must decode to their text. `trust`: that check is left out; "
        "special ids and ids out of range are refused all the same.",
    )
    min_text_length: CountOrZero = Field(
        default=_TOKENS.min_text_length, description="Text blocks with fewer characters get no ids on `/mcp`."
    )


class LimitsSection(Section):
    """`[limits]`."""

    turns: Count = Field(default=_LIMITS.turns, description="Generations per request, the first included.")
    tool_timeout: Seconds = Field(default=_LIMITS.tool_timeout, description="Seconds a tool call may take.")
    result_tokens: Count = Field(
        default=_LIMITS.result_tokens,
        description="Ids of one tool result that reach the model; the rest is cut, and it is told.",
    )
    result_bytes: Count = Field(
        default=_LIMITS.result_bytes, description="Largest answer of an MCP server in bytes, as it comes over the wire."
    )
    completion_tokens: Count = Field(
        default=_LIMITS.completion_tokens, description="Generated ids per request when the client names no limit."
    )
    start_timeout: Seconds = Field(
        default=_LIMITS.start_timeout,
        description="Seconds an MCP server may take to start and list its tools; a first start may download it.",
    )
    restart_backoff: Seconds = Field(
        default=_LIMITS.restart_backoff,
        description="First pause, in seconds, before a dead MCP server is started again; doubles.",
    )
    restart_backoff_max: Seconds = Field(
        default=_LIMITS.restart_backoff_max, description="Longest such pause in seconds."
    )
    drain: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=_LIMITS.drain, description="Seconds that running requests get when the gateway is asked to stop."
    )
    body_bytes: Count = Field(default=_LIMITS.body_bytes, description="Largest request body in bytes.")
    memory_bytes: Count = Field(
        default=_LIMITS.memory_bytes,
        description="Bytes in which conversations of /v1 are remembered, so that their next requests go on with the "
        "ids that the engine holds.",
    )
    responses_bytes: Count = Field(
        default=_LIMITS.responses_bytes,
        description="Bytes in which answers of /v1/responses are stored, with the items of their requests.",
    )
    responses_ttl: Seconds = Field(
        default=_LIMITS.responses_ttl, description="Seconds for which a stored answer is kept that nobody uses."
    )
    principal_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=_LIMITS.principal_share,
        description="Part of each bound that one API key or OAuth subject may take: of sessions, calls that wait for "
        "their client or for a server, generations that wait for a slot, subscriptions, processes for clients and "
        "sampling tokens. Callers without a credential, where "
        "none is asked for, and the operator have the whole.",
    )


class Settings(Section):
    """The whole of codec-gateway.toml."""

    mcp_config: str | None = Field(default=None, description="Path of an mcpServers JSON whose servers are added.")
    separator: str = Field(
        default=GatewayConfig().separator,
        pattern=r"^[A-Za-z0-9_-]{1,8}$",
        description="Stands between server and tool in a public tool name.",
    )
    prefix: PrefixPolicy = Field(
        default=GatewayConfig().prefix,
        description="Whether public names begin with their server: `always`, `never`, or `auto`: not where there is "
        "only one server.",
    )
    tool_search: bool | Literal["auto"] = Field(
        default=GatewayConfig().tool_search,
        description="Two tools in place of all, `codec_search_tools` and `codec_call_tool`: a model finds the others "
        "by what they do. `true`: for MCP clients and `/v1`. `auto`: for a conversation on `/v1` when the definitions "
        "of all would take more than a quarter of the engine's context; that of MCP clients nobody knows.",
    )
    engine: EngineSection = EngineSection()
    engines: dict[str, EngineSection] = Field(default={})
    agent: AgentSection = AgentSection()
    tokens: TokensSection = TokensSection()
    limits: LimitsSection = LimitsSection()
    serve: ServeSection = ServeSection()
    wire: WireSection = WireSection()
    registry: RegistrySection = RegistrySection()
    audit: AuditSection = AuditSection()
    trajectories: TrajectoriesSection = TrajectoriesSection()
    telemetry: TelemetrySection = TelemetrySection()
    replicas: ReplicasSection = ReplicasSection()
    shared: SharedSection = SharedSection()
    console: ConsoleSection = ConsoleSection()
    upstreams: dict[str, UpstreamSection] = Field(default={})
