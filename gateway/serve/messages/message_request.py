"""What a client may send to `POST /v1/messages`, checked and turned into the agent's terms.

Anthropic's shape. Fields are of the three classes of `RequestModel`; nested fields without effect are named by their
path (`thinking.budget_tokens`). Knows nothing of HTTP.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Self, cast

from pydantic import BeforeValidator, Field

from gateway.agent import OURS, AnswerOptions, Deferral, SearchTool, ToolChoice, ToolScope
from gateway.agent.compaction import Compaction
from gateway.context.history.client_messages import unread_fields
from gateway.context.history.shortening import ClearedHistory, with_cleared_results
from gateway.engine.interface import Message, Sampling
from gateway.errors import RequestInvalid
from gateway.escape import escape_text
from gateway.serve.generation.request_fields import (
    FAIL_FAST,
    MOST_TEMPERATURE,
    ApiModel,
    RequestModel,
    bounded_top_k,
    checked_part,
)
from gateway.serve.generation.tools_and_formats import (
    MOST_TOOLS,
    GatewayTools,
    check_continuation,
    check_values,
    ignores_effort,
    read_choice,
    read_client_tool,
    read_form,
    scope_of,
    thinking_options,
)
from gateway.serve.messages.context_edits import CompactNow, ContextEdits, ContextManagement
from gateway.serve.messages.input_messages import read_messages
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.schema.spec import ToolSpec

# The tools of a request to `/v1/messages`, sorted by who runs them.
#
# Turns the list into the client's own tools, the gateway's servers that the request restricts itself to
# (`mcp_toolset`), and the names of tools that are left out: those that Anthropic's servers run, and those that its
# models know without a schema. The model here does not get these. Pure.

_SHOWN: Final = 64
_LEFT_OUT: Final = 32
_TOOLSET: Final = ("type", "mcp_server_name", "default_config", "configs", "cache_control")
_CONFIG: Final = ("enabled",)
_SEARCH: Final = ("type", "name", "cache_control")


_SEARCHES: Final[Mapping[str, SearchTool]] = {
    "tool_search_tool_bm25": SearchTool(
        ToolSpec(
            "tool_search_tool_bm25",
            OURS.spec.description,
            {
                "type": "object",
                "properties": {"query": {"type": "string", "description": "What the tool should do, in a few words."}},
                "required": ["query"],
            },
        )
    ),
    "tool_search_tool_regex": SearchTool(
        ToolSpec(
            "tool_search_tool_regex",
            "Find tools whose name, description or parameters hold the words of a pattern. Returns the definitions of "
            "those that fit best; from then on you can call them.",
            {
                "type": "object",
                "properties": {"pattern": {"type": "string", "description": "Words, such as `weather|forecast`."}},
                "required": ["pattern"],
            },
        ),
        "pattern",
    ),
}
"""Anthropic's searches by the beginnings of their types. Only the words of a pattern count, so none can be slow."""


class _Enabled(ApiModel):
    enabled: bool | None = None


class _Toolset(ApiModel):
    mcp_server_name: str | None = None
    default_config: _Enabled = _Enabled()
    configs: Annotated[Mapping[str, _Enabled], FAIL_FAST] = Field(default_factory=dict[str, _Enabled])


class SortedTools:
    """The tools of one request."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Sort the tools. Raises `RequestInvalid` that names the entry."""
        self.client = list[ToolSpec]()
        self.eager: set[str] = set()
        """Names of the client's tools whose arguments it wants piece by piece."""
        self.servers: dict[str, frozenset[str] | None] = {}
        self.left_out: list[str] = []
        self.search: SearchTool | None = None
        self._deferred: set[str] = set()
        self._values = 0
        for number, tool in enumerate(tools):
            self._sort(tool, f"tools[{number}]")
        check_values(self._values)

    @property
    def deferral(self) -> Deferral:
        """Which of the client's tools are deferred; without a search of this API, one of its tools finds them."""
        return Deferral(self._deferred, self.search)

    def check_servers(self, known: Collection[str]) -> None:
        """Raise `RequestInvalid` for a server that is not one of `known`."""
        for name in self.servers:
            if name not in known:
                words = f"tools: {escape_text(name, _SHOWN)!r} is not one of the gateway's servers that you may use"
                raise RequestInvalid(words, param="tools")

    def _sort(self, tool: Mapping[str, Any], where: str) -> None:
        kind = tool.get("type")
        if kind == "mcp_toolset":
            self._narrow(checked_part(_Toolset, tool, where), where)
            self._leave_out_fields(tool, _TOOLSET)
            configs = cast("Mapping[str, Mapping[str, Any]]", tool.get("configs") or {})
            self._leave_out_fields(tool.get("default_config") or {}, _CONFIG, "default_config.")
            for config in configs.values():
                self._leave_out_fields(config, _CONFIG, "configs.")
            return
        if (search := _search_of(kind)) is not None:
            self.search = self.search or search
            self._leave_out_fields(tool, _SEARCH)
            return
        if kind == "custom" and not {"custom", "format"} & tool.keys():
            # Here that is the type of a function, of one without a schema too.
            tool = {**tool, "type": "function"}
        if (read := read_client_tool(tool, where)) is None:
            self._leave_out(f"{where}: {escape_text(str(kind), _SHOWN)}")
            return
        self.client.append(read.spec)
        self._values += read.values
        if read.deferred:
            self._deferred.add(read.spec.name)
        for name in read.unused:
            if name != "eager_input_streaming":
                self._leave_out(f"tools.{name}")
        if tool.get("eager_input_streaming") is True:
            self.eager.add(read.spec.name)

    def _leave_out(self, what: str) -> None:
        if len(self.left_out) < _LEFT_OUT and what not in self.left_out:
            self.left_out.append(what)

    def _leave_out_fields(self, fields: Mapping[str, Any], read: Container[str], place: str = "") -> None:
        for name in unread_fields(fields, read):
            self._leave_out(f"tools.{place}{name}")

    def _narrow(self, tool: _Toolset, where: str) -> None:
        if not tool.mcp_server_name:
            words = f"{where}.mcp_server_name: expected the name of one of the gateway's servers"
            raise RequestInvalid(words, param=f"{where}.mcp_server_name")
        if tool.default_config.enabled is False:
            enabled = frozenset(name for name, config in tool.configs.items() if config.enabled)
            self.servers[tool.mcp_server_name] = enabled
        elif any(config.enabled is False for config in tool.configs.values()):
            raise RequestInvalid(
                f"{where}.configs: tools can't be disabled one by one: set "
                "'default_config': {'enabled': false}, and enable the tools that you want",
                param=f"{where}.configs",
            )
        else:
            self.servers[tool.mcp_server_name] = None


def _search_of(kind: object) -> SearchTool | None:
    known = (search for name, search in _SEARCHES.items() if isinstance(kind, str) and kind.startswith(name))
    return next(known, None)


_STOPS: Final = 64
_STOP_LENGTH: Final = 1000


class _Thinking(ApiModel):
    type: str = "enabled"
    budget_tokens: int | None = None
    display: str | None = None


class _OutputConfig(ApiModel):
    effort: str | None = None
    format: Any = None


def _as_object(thinking: object) -> object:
    return {"type": "enabled" if thinking else "disabled"} if isinstance(thinking, bool) else thinking


def _as_list(texts: object) -> object:
    return [texts] if isinstance(texts, str) else texts


class PromptFields(RequestModel):
    """The fields that determine the prompt: all that `/v1/messages/count_tokens` reads."""

    refused: ClassVar[Mapping[str, str]] = {
        "mcp_servers": "only configured servers can be used: choose one with a tool of type `mcp_toolset`",
        "container": "nothing runs in a container here",
    }
    hints: ClassVar[frozenset[str]] = frozenset(
        {
            *("metadata", "service_tier", "inference_geo", "speed", "diagnostics"),
            *("user_profile_id", "betas", "billing_policy"),
        }
    )

    model: str | None = None
    messages: Any
    system: Any = None
    tools: Annotated[tuple[dict[str, Any], ...], Field(max_length=MOST_TOOLS, fail_fast=True)] = ()
    tool_choice: Any = "auto"
    thinking: Annotated[_Thinking | None, BeforeValidator(_as_object)] = None
    output_format: Any = None
    output_config: _OutputConfig = _OutputConfig()
    cache_control: dict[str, Any] | None = None
    context_management: ContextManagement | None = None
    compaction: CompactNow | None = None
    gateway_tools: GatewayTools = "all"

    @cached_property
    def conversation(self) -> tuple[Sequence[Message], tuple[str, ...]]:
        """The messages in the agent's terms, and the types of blocks that were left out. Raises `RequestInvalid`."""
        return read_messages(self.system, self.messages)

    @cached_property
    def edits(self) -> ContextEdits:
        """What is to be done to the context. Raises `RequestInvalid`."""
        return ContextEdits(self.context_management, self.compaction)

    @cached_property
    def edited(self) -> ClearedHistory:
        """The messages, without results that are taken out. Raises `RequestInvalid`."""
        messages, rule = self.conversation[0], self.edits.clearing
        return ClearedHistory(messages) if rule is None else with_cleared_results(messages, rule)

    @cached_property
    def sorted_tools(self) -> SortedTools:
        """The tools, sorted by who runs them. Raises `RequestInvalid`."""
        return SortedTools(self.tools)

    @property
    def template_options(self) -> dict[str, str | bool]:
        """Options for the chat template."""
        said = {"enabled": True, "disabled": False}
        thinks = None if self.thinking is None else said.get(self.thinking.type)
        return thinking_options(self.output_config.effort, thinks=thinks)

    @property
    def continues(self) -> bool:
        """Whether the last message is the assistant's and has been begun, so that the answer continues it."""
        messages = self.conversation[0]
        last = messages[-1]
        return (
            len(messages) > 1 and last["role"] == "assistant" and bool(last["content"]) and not last.get("tool_calls")
        )

    @property
    def compacts(self) -> Compaction | None:
        """How the conversation is summed up; None: it is not, or it ends with an answer that is to be continued."""
        asked = self.edits.compaction
        return None if asked is not None and asked.threshold is not None and self.continues else asked

    def gateway_scope(self) -> ToolScope:
        """The gateway's tools that the request wants."""
        return scope_of(self.gateway_tools, self.sorted_tools.servers or None)

    @cached_property
    def choice(self) -> ToolChoice:
        """`tool_choice` in the agent's terms. Raises `RequestInvalid`."""
        return read_choice(self.tool_choice)


class MessagesRequest(PromptFields):
    """One request, checked."""

    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stream: bool = False
    stop_sequences: Annotated[
        tuple[Annotated[str, Field(max_length=_STOP_LENGTH)], ...],
        Field(max_length=_STOPS, fail_fast=True),
        BeforeValidator(_as_list),
    ] = ()
    temperature: Annotated[float, Field(ge=0, le=MOST_TEMPERATURE)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None

    @property
    def thinks(self) -> bool:
        """Whether the client wants to see the model's reasoning."""
        return self.thinking is not None and self.thinking.type != "disabled"

    @property
    def marks_cache(self) -> bool:
        """Whether the client asks for anything to be cached. Only for a request whose `conversation` could be read."""
        contents: list[object] = [self.system, *(message.get("content") for message in self.messages)]
        return (
            self.cache_control is not None
            or any(tool.get("cache_control") is not None for tool in self.tools)
            or any(map(_is_marked, contents))
        )

    @classmethod
    def checked(cls, body: bytes) -> Self:
        """Read a request from an HTTP body. Raises `RequestInvalid` that names the first invalid field."""
        request = cls.of_body(body)
        # An invalid schema is reported here, before anything is generated.
        form = request.form
        if request.continues:
            check_continuation(form, request.choice, "messages", "end the messages with a user message")
        return request

    @cached_property
    def form(self) -> AnswerForm | None:
        """The form that the answer's text must have; None: any. Raises `RequestInvalid` for an unenforceable schema."""
        # Under its first name it stood beside the other fields.
        return read_form(self.output_config.format or self.output_format, "output_config.format")

    def without_effect(self, used: Container[str]) -> list[str]:
        """Names of fields, nested fields, tools and blocks without effect. `used`: options that the template knows."""
        named = ["thinking.budget_tokens"] if self.thinking and self.thinking.budget_tokens is not None else []
        if ignores_effort(self.output_config.effort, used):
            named.append("output_config.effort")
        blocks = [f"messages: {kind}" for kind in self.conversation[1]]
        return [*self.ignored, *named, *self.edits.unserved, *self.sorted_tools.left_out, *blocks]

    def options(self) -> AnswerOptions:
        """How the answer is to be made."""
        chosen: object = self.tool_choice
        single = (
            cast("Mapping[str, Any]", chosen).get("disable_parallel_tool_use") if isinstance(chosen, dict) else None
        )
        return AnswerOptions(
            choice=self.choice,
            max_tokens=self.max_tokens,
            sampling=Sampling(temperature=self.temperature, top_p=self.top_p, top_k=bounded_top_k(self.top_k)),
            stops=self.stop_sequences,
            parallel=not single if isinstance(single, bool) else None,
            form=self.form,
            # Calls that the gateway runs are shown in their own blocks (`mcp_tool_use`).
            show_calls=False,
        )


def _is_marked(content: object) -> bool:
    """Whether any block of a content has `cache_control`."""
    if not isinstance(content, list):
        return False
    return any(
        isinstance(block, Mapping) and cast("Mapping[str, Any]", block).get("cache_control") is not None
        for block in cast("list[object]", content)
    )
