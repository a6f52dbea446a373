"""The gateway's own settings: their names, the values they may have, and what they mean.

Defaults come from `gateway_config.py`, so that each is written once; docs/configure.md shows the descriptions from
here. It reads nothing and merges nothing; `layers.py` checks values with it.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from gateway.config.access import AuditSection, ConsoleSection, TelemetrySection, TrajectoriesSection
from gateway.config.gateway_config import (
    AgentConfig,
    EngineConfig,
    GatewayConfig,
    LimitsConfig,
    PrefixPolicy,
    TokensConfig,
    VerifyLevel,
)
from gateway.config.overrides import ApprovalsSection, OverrideSection
from gateway.config.replicas import ReplicasSection, SharedSection
from gateway.config.section import Count, CountOrZero, Seconds, Section
from gateway.config.tables import RegistrySection, ServeSection, UpstreamSection
from gateway.config.wire import WireSection

_ENGINE, _AGENT, _TOKENS, _LIMITS = EngineConfig(), AgentConfig(), TokensConfig(), LimitsConfig()

MAP_DEFAULT: Final = "auto"


class EngineSection(Section):
    """`[engine]`, or one word: `engine = "embedded"`, `"none"` or a URL."""

    kind: Literal["none", "embedded", "url"] = Field(
        default=_ENGINE.kind,
        description="Which engine generates. `none`: no engine; `embedded`: a llama.cpp server that the gateway "
        "starts; `url`: the server at `url`.",
    )
    url: str | None = Field(
        default=_ENGINE.url, description="Base URL of a llama.cpp or vLLM server; setting it sets `kind` to `url`."
    )
    api: Literal["auto", "llama_cpp", "vllm"] = Field(
        default=_ENGINE.api,
        description="Which API the server at `url` speaks; `auto`: the gateway finds out from its answers.",
    )
    served_model: str | None = Field(
        default=None,
        min_length=1,
        description="Which of the models that the server lists at `/v1/models` to use: a LoRA adapter of vLLM, or a "
        "model of a llama-server in router mode. Unset: the first; of a router, the only one that it has, or has "
        "loaded. To use several models of one server, give each an engine of its own (`[engines.NAME]`) with the "
        "same `url`.",
    )
    at_once: Count = Field(
        default=_ENGINE.at_once,
        description="Generations that may run at a time on a server that does not say how many it takes, as vLLM "
        "does not; its `max_num_seqs` should be at least as large.",
    )
    api_key: str | None = Field(
        default=_ENGINE.api_key, description="API key to send to the server at `url`, if it requires one."
    )
    model: str | None = Field(
        default=None,
        description="GGUF file of the model; unset: the packaged SmolLM2-135M. If neither `kind` nor `url` is set, "
        "setting it sets `kind` to `embedded`.",
    )
    chat_template: str | None = Field(
        default=_ENGINE.chat_template,
        description="Chat template of the embedded engine, for a model that has none or a wrong one: a file (Jinja), "
        "or `chatml`, llama.cpp's own; unset: the model's.",
    )
    context: Annotated[int, Field(ge=256)] = Field(
        default=_ENGINE.context,
        description="Context length of the embedded engine in tokens, shared by its slots. No slot gets "
        "more than the model was trained on: a larger share is lowered to that, with a warning at the start.",
    )
    slots: Count = Field(
        default=_ENGINE.slots, description="Slots of the embedded engine: generations that it can run at a time."
    )
    threads: CountOrZero = Field(
        default=_ENGINE.threads, description="Threads of the embedded engine; 0: one fewer than there are cores."
    )
    start_timeout: Seconds = Field(default=_ENGINE.start_timeout, description="Seconds the engine may take to start.")
    idle_timeout: Seconds = Field(
        default=_ENGINE.idle_timeout,
        description="Longest pause in a stream, in seconds, before the engine counts as down.",
    )
    exclusive: bool = Field(
        default=_ENGINE.exclusive,
        description="`true`: only this gateway generates with the server at `url` (which may be one that "
        "`codec-gateway engine` runs), so this gateway may choose the server's slots.",
    )
    own_slots: Annotated[str, Field(pattern=r"^\d{1,4}-\d{1,4}$")] | None = Field(
        default=None,
        description="Slots of the llama.cpp server at `url` that are this gateway's alone, as FIRST-LAST, counted "
        "from 0. For several gateways that share one server: each must have slots of its own, and "
        "nobody else may generate with that server.",
    )
    cache_mib: CountOrZero | None = Field(
        default=_ENGINE.cache_mib,
        description="Memory, in MiB, in which the embedded engine keeps the KV cache of conversations that have "
        "lost their slot; 0: none; unset: a quarter of the free memory, at most 8192.",
    )
    slot_files: str = Field(
        default=_ENGINE.slot_files,
        description="Where the KV cache of a conversation is kept when another one needs its slot. `auto`: in a "
        "directory in memory, which is removed when the gateway ends; `off`: in the embedded engine's "
        "own cache; a path: in that directory, from which conversations can be restored after a "
        "restart. With an `exclusive` server at `url` only a path has an effect; it must be the one "
        "given to `llama-server --slot-save-path`.",
    )
    slot_files_bytes: CountOrZero | None = Field(
        default=_ENGINE.slot_files_bytes,
        description="Largest total size of the slot files in bytes; 0: none are kept; unset: the size that "
        "`cache_mib` gives.",
    )
    isolate: bool = Field(
        default=_ENGINE.isolate,
        description="`true`: what is cached from one principal's prompts is never reused for another principal. "
        "Works with the embedded engine, whose host cache is then off, and with vLLM (`api = "
        '"vllm"`), by salts for its prefix cache.',
    )
    prefill: Literal["auto", "off"] = Field(
        default=_ENGINE.prefill,
        description="`auto`: while a tool runs, the engine already processes the ids that the chat template "
        "writes before the tool's result. This is done if the gateway chooses the engine's slots, the "
        "engine is otherwise idle, and processing these ids takes longer than generating two. `off`: "
        "they are processed together with the result.",
    )
    hold_calls: bool = Field(
        default=_ENGINE.hold_calls,
        description="`true`: when the model itself decides to call a tool, a grammar makes the call follow the "
        "tool's schema, from the special token with which it begins; models without such a token are "
        "not affected. Needs llama.cpp of December 2025 or later, or vLLM with its xgrammar backend.",
    )
    tool_format: str = Field(
        default=_ENGINE.tool_format,
        description="Format in which the model writes calls, by its name in docs/tool-formats.md; `auto`: "
        "recognised by the model's chat template.",
    )
    reasoning: Literal["template", "keep"] = Field(
        default=_ENGINE.reasoning,
        description="What happens to the model's reasoning of earlier turns. `template`: what the engine and the "
        "chat template do by default; most templates drop it at the next question, and the cache from "
        "there on is lost. `keep`: it stays in the prompt, if the template has a switch for that; "
        "this takes room in the context, and not every model was trained on it.",
    )
    volatile: list[str] = Field(
        default=list(_ENGINE.volatile),
        description="Regular expressions for parts to remove from system messages before anything else is done, "
        "because they change with every session and would make the cache useless. The default matches "
        "Claude Code's billing header.",
    )
    aliases: list[str] = Field(
        default=[],
        description="Names by which clients may ask for the engine's model, besides its own. They matter only if "
        "there are several models; a single one answers to any name.",
    )


class AgentSection(Section):
    """`[agent]`."""

    show_calls: bool = Field(
        default=_AGENT.show_calls,
        description="`true`: the calls that the gateway runs itself are also reported as `tool_calls`. Many "
        "clients would then run them again; `codec.tool_results` lists them in any case. A request "
        "can override this with a field of the same name.",
    )
    defer_client_tools: Literal["auto", "never", "always"] = Field(
        default=_AGENT.defer_client_tools,
        description="Whether the model searches for a client's own tools instead of reading all of their definitions, "
        "where the client itself defers none. `auto`: if more than five would take over half of the context; "
        "`codec.diagnostics` then says so.",
    )
    suggested_tools: int = Field(
        default=_AGENT.suggested_tools,
        ge=0,
        le=20,
        description="How many deferred tools are defined in front of a new user message, where the gateway searches: "
        "those that share the most words with it, in all at most about 1,000 tokens and a small share of the context. "
        "Small models seldom search by themselves. 0: none.",
    )
    result_files: str | None = Field(
        default=None,
        description="Existing folder for kept results (`limits.kept_result_bytes`) that memory has no room for: at "
        "most eight times as many bytes as in memory. The files have no names, so nobody else can open them, and they "
        "go with the process. Unset: the least recently used results are dropped.",
    )


class TokensSection(Section):
    """`[tokens]`."""

    map: str = Field(
        default=MAP_DEFAULT,
        description="Session map: `auto` (built from the engine's model), `none` (text only) or the path of a map.",
    )
    maps: list[str] = Field(
        default=[], description="Paths of further accepted maps. Each is proven against the engine at the start."
    )
    verify: VerifyLevel = Field(
        default=_TOKENS.verify,
        description="How leaf ids are checked. `verify`: they must decode to their text. `trust`: that check is "
        "skipped; special ids and ids out of range are still refused.",
    )
    min_text_length: CountOrZero = Field(
        default=_TOKENS.min_text_length, description="Text blocks with fewer characters get no ids on `/mcp`."
    )


class LimitsSection(Section):
    """`[limits]`."""

    turns: Count = Field(default=_LIMITS.turns, description="Most generations per request, including the first.")
    repeated_calls: CountOrZero = Field(
        default=_LIMITS.repeated_calls,
        description="How many times in a row a model may make the same call and get the same result before it is told "
        "so; after one more it has to answer in words. Calls whose results change are not counted. 0: no limit.",
    )
    tool_timeout: Seconds = Field(
        default=_LIMITS.tool_timeout,
        description="Seconds that a tool call may take. A call that asks for progress has this time again after each "
        "report of its server.",
    )
    tool_timeout_max: Seconds = Field(
        default=_LIMITS.tool_timeout_max,
        description="Seconds that a call may take in total, however often its server reports progress.",
    )
    result_tokens: Count = Field(
        default=_LIMITS.result_tokens,
        description="Most ids of one tool result that reach the model at once. A longer result is kept, and the model "
        "can read on in it ([how](openai-apps.md#large-results)); where it can't be kept, the rest is cut off, and the "
        "model is told.",
    )
    mcp_result_characters: CountOrZero = Field(
        default=_LIMITS.mcp_result_characters,
        description="Most characters of a tool's result for MCP clients that name no limit of their own; of a longer "
        "one they get the beginning, and the URI of a resource with the whole "
        "([how](mcp-clients.md#large-results)). 0: results stay whole.",
    )
    kept_result_bytes: CountOrZero = Field(
        default=_LIMITS.kept_result_bytes,
        description="Memory, in bytes, for results of tools that are too long to show. 0: none is kept.",
    )
    kept_result_seconds: Seconds = Field(
        default=_LIMITS.kept_result_seconds,
        description="Seconds after which a kept result that the model does not read is dropped. It is also dropped "
        "with its conversation.",
    )
    result_bytes: Count = Field(
        default=_LIMITS.result_bytes, description="Largest answer of an MCP server, in bytes as it is sent."
    )
    completion_tokens: Count = Field(
        default=_LIMITS.completion_tokens,
        description="Most tokens generated per request if the client sets no limit. The end of the context is a limit "
        "in any case.",
    )
    start_timeout: Seconds = Field(
        default=_LIMITS.start_timeout,
        description="Seconds that an MCP server may take to start and list its tools. The first start may have to "
        "download it.",
    )
    list_wait: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=_LIMITS.list_wait,
        description="Seconds for which a client's first lists wait for MCP servers that are starting, since many "
        "clients list only once. `stdio` does not wait for a server whose lists it knows from an earlier run.",
    )
    restart_backoff: Seconds = Field(
        default=_LIMITS.restart_backoff,
        description="Pause, in seconds, before a dead MCP server is started again. It doubles with each failure.",
    )
    restart_backoff_max: Seconds = Field(
        default=_LIMITS.restart_backoff_max, description="Longest such pause, in seconds."
    )
    drain: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=_LIMITS.drain,
        description="Seconds that running requests get to finish when the gateway is asked to stop.",
    )
    body_bytes: Count = Field(default=_LIMITS.body_bytes, description="Largest request body in bytes.")
    memory_bytes: Count = Field(
        default=_LIMITS.memory_bytes,
        description="Memory, in bytes, for conversations of `/v1`. They are remembered so that the next request "
        "of each continues with the ids that the engine holds.",
    )
    responses_bytes: Count = Field(
        default=_LIMITS.responses_bytes,
        description="Memory, in bytes, for stored responses of `/v1/responses`, with the items of their requests.",
    )
    responses_ttl: Seconds = Field(
        default=_LIMITS.responses_ttl, description="Seconds after which a stored response that nobody uses is removed."
    )
    principal_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=_LIMITS.principal_share,
        description="Part of each bound that one API key or OAuth subject may use. This applies to sessions, "
        "calls that wait for their client or for a server, generations that wait for a slot, "
        "subscriptions, and processes for clients. Callers without a credential, if "
        "none is required, and the operator may use all of each bound.",
    )


class ViewSection(Section):
    """`[views.NAME]`: a part of the gateway, served at `/mcp/NAME`."""

    servers: list[str] = Field(default=[], description="Names of the servers in the view; empty: all.")
    tools: list[str] = Field(
        default=[],
        description="Patterns (`*`, `?`) for the tools in the view, by their public names; empty: all of its servers. "
        "Prompts and resources are those of its servers.",
    )
    overrides: dict[str, OverrideSection] = Field(default={})


class Settings(Section):
    """The whole of codec-gateway.toml."""

    mcp_config: str | None = Field(default=None, description="Path of an mcpServers JSON file whose servers are added.")
    separator: str = Field(
        default=GatewayConfig().separator,
        pattern=r"^[A-Za-z0-9_-]{1,8}$",
        description="Separates the server's name from the tool's in a public tool name.",
    )
    prefix: PrefixPolicy = Field(
        default=GatewayConfig().prefix,
        description="Whether public names begin with the server's name: `always`, `never`, or `auto` (unless "
        "there is only one server).",
    )
    tool_search: bool | Literal["auto"] = Field(
        default=GatewayConfig().tool_search,
        description="Whether the model searches for tools by what they do instead of reading all definitions. On "
        "`/v1` it gets `codec_search_tools`, and calls what it finds by its own name; MCP clients also get "
        "`codec_call_tool`, which calls it. `true`: for MCP clients and on `/v1`. `false`: never. `auto`: only on "
        "`/v1`, for a conversation in which the definitions of all tools would take more than a quarter of the "
        "engine's context; the gateway does not know the context of MCP clients.",
    )
    safe_names: bool | Literal["auto"] = Field(
        default=GatewayConfig().safe_names,
        description="Whether a tool is offered under an alias if model APIs refuse its name: they take 1 to 64 "
        "letters, digits, `_` and `-`. The alias is what can be read of the name, and a digest of it. `true`: to MCP "
        "clients and on `/v1`. `false`: never. `auto`: only on `/v1`; MCP clients see the public name.",
    )
    engine: EngineSection = EngineSection()
    engines: dict[str, EngineSection] = Field(default={})
    agent: AgentSection = AgentSection()
    tokens: TokensSection = TokensSection()
    limits: LimitsSection = LimitsSection()
    serve: ServeSection = ServeSection()
    wire: WireSection = WireSection()
    registry: RegistrySection = RegistrySection()
    approvals: ApprovalsSection = ApprovalsSection()
    audit: AuditSection = AuditSection()
    trajectories: TrajectoriesSection = TrajectoriesSection()
    telemetry: TelemetrySection = TelemetrySection()
    replicas: ReplicasSection = ReplicasSection()
    shared: SharedSection = SharedSection()
    console: ConsoleSection = ConsoleSection()
    views: dict[str, ViewSection] = Field(default={})
    upstreams: dict[str, UpstreamSection] = Field(default={})
