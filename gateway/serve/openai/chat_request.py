"""What a client may send to `POST /v1/chat/completions`, checked and turned into the agent's terms.

OpenAI's shape (API reference, "Create chat completion"). Fields that we don't know are ignored, as OpenAI's servers do;
fields that we know and can't honour are refused by name, so that nobody gets a different answer from the one they asked
for. Knows nothing of HTTP. Fields that are not specific to chats are in `serve/generation/fields.py`.
"""

from collections.abc import Collection, Container, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from gateway.agent import NO_DEFERRAL, OURS, AnswerOptions, Deferral, ToolChoice, ToolScope
from gateway.context.history.client_messages import LeftOut, checked_messages
from gateway.errors import RequestInvalid
from gateway.escape import escape_text
from gateway.serve.generation.fields import FAIL_FAST, HINTS, OTHER_GRAMMARS, GenerationFields
from gateway.serve.generation.request_options import (
    MOST_TOOLS,
    GatewayTools,
    check_continuation,
    check_schemas,
    ignores_effort,
    input_of,
    read_choice,
    read_client_tool,
    scope_of,
    thinking_options,
)
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallArguments, CallClosed, CallStarted, Event, event_delta
from leaf_sdk.vocab import TokenMap

# The shapes of calls in a chat completion: of functions, of free-form tools, and the old one of an answer's only call.
#
# The input of a free-form tool is known only when the call is whole: until then the model writes JSON that encodes it.
# Source: OpenAI's API reference, "Create chat completion" (`custom` tools; `functions` and `function_call`). Pure.

_Delta = dict[str, Any]

_OLD_REASONS: Final = {"tool_calls": "function_call"}


class CallShapes:
    """How the calls of one answer are shown."""

    def __init__(self, free_form: Collection[str] = (), *, old: bool = False) -> None:
        """`free_form`: names of the client's free-form tools. `old`: the client sent `functions`."""
        self._free_form = free_form
        self._old = old
        self._open: set[int] = set()
        """Calls of free-form tools that are not whole yet."""

    def delta(self, event: Event) -> _Delta | None:
        """An event's delta; None for one that has none."""
        match event:
            case CallStarted(name=name) if self._old:
                return {"function_call": {"name": name, "arguments": ""}}
            case CallArguments(fragment=fragment) if self._old:
                return {"function_call": {"arguments": fragment}}
            case CallStarted(index, call_id, name) if name in self._free_form:
                self._open.add(index)
                custom = {"name": name, "input": ""}
                return {"tool_calls": [{"index": index, "id": call_id, "type": "custom", "custom": custom}]}
            case CallArguments(index=index) if index in self._open:
                return None
            case CallClosed(index=index, arguments=arguments) if index in self._open:
                self._open.discard(index)
                return {"tool_calls": [{"index": index, "custom": {"input": input_of(arguments)}}]}
            case _:
                return event_delta(event)

    def message(self, calls: list[_Delta]) -> _Delta:
        """The fields of a whole message for its calls, which are given in the shape of functions."""
        if not calls:
            return {}
        return {"function_call": calls[0]["function"]} if self._old else {"tool_calls": list(map(self._whole, calls))}

    def _whole(self, call: _Delta) -> _Delta:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name not in self._free_form:
            return call
        return {"id": call["id"], "type": "custom", "custom": {"name": name, "input": input_of(arguments)}}

    def reason(self, reason: str) -> str:
        """Why the answer ended, in the words of the shape."""
        return _OLD_REASONS.get(reason, reason) if self._old else reason


# The tools of a chat request: functions and free-form tools are the client's, others are left out by name. Pure.

_SHOWN: Final = 64
_LEFT_OUT: Final = 32


class ChatTools:
    """The tools of one request."""

    def __init__(self, tools: Sequence[Mapping[str, Any]], where: str) -> None:
        """Read them. Raises `RequestInvalid` that names the entry."""
        self.specs = list[ToolSpec]()
        free_form: list[str] = []
        left_out: list[str] = []
        deferred: list[str] = []
        for number, tool in enumerate(tools):
            place = f"{where}[{number}]"
            read = read_client_tool(tool, place)
            if read is None:
                left_out.append(f"{place}: {escape_text(str(tool.get('type')), _SHOWN)}")
                continue
            self.specs.append(read.spec)
            if read.kind == "custom":
                free_form.append(read.spec.name)
            if read.deferred:
                deferred.append(read.spec.name)
            left_out += (f"{where}.{name}" for name in read.unused)
        check_schemas(spec.parameters for spec in self.specs)
        self.free_form = frozenset(free_form)
        """Names of the free-form tools."""
        self.deferral = Deferral(frozenset(deferred), OURS) if deferred else NO_DEFERRAL
        """Which of them are deferred: the gateway searches, since this API has no search of its own."""
        self.left_out = tuple(dict.fromkeys(left_out))[:_LEFT_OUT]


_CHOICES: Final = 16
"""Maximum number of answers to one request (OpenAI takes 128): they are made one after another."""


class ChatRequest(GenerationFields):
    """One request, checked. `checked` checks `messages` separately, so that its errors name a place people can find."""

    refused: ClassVar[Mapping[str, str]] = {
        "audio": "this model reads and writes only text",
        "web_search_options": "only tools can search here",
        **OTHER_GRAMMARS,
    }
    hints: ClassVar[frozenset[str]] = HINTS | {"prediction", "verbosity"}

    messages: Any
    tools: Annotated[tuple[dict[str, Any], ...], Field(max_length=MOST_TOOLS, fail_fast=True)] = ()
    tool_choice: Any = "auto"
    functions: Annotated[tuple[dict[str, Any], ...], Field(max_length=MOST_TOOLS, fail_fast=True)] = ()
    function_call: Any = "auto"
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    show_calls: bool | None = None
    gateway_tools: GatewayTools = "all"
    n: Annotated[int, Field(ge=1, le=_CHOICES)] = 1
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 0
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    continue_final_message: bool = False
    add_generation_prompt: bool | None = None
    modalities: Annotated[tuple[Literal["text"], ...], FAIL_FAST] | None = None

    @classmethod
    def checked(cls, body: bytes) -> tuple["ChatRequest", list[dict[str, Any]]]:
        """Read a request and its messages from an HTTP body. Raises `RequestInvalid` with the first invalid field."""
        request = cls.of_body(body)
        _, _ = request.read_tools, request.choice()
        if request.top_logprobs and not request.logprobs:
            raise RequestInvalid("top_logprobs: requires logprobs: true", param="top_logprobs")
        request.check_prefill()
        for name, asked in (("n", request.n > 1), ("logprobs", request.logprobs)):
            if asked and request.stream_format != "json":
                raise RequestInvalid(f"{name}: not supported in frames: leave out {name} or stream_format", param=name)
        # An invalid schema is reported here, before the engine or a tool is asked for anything.
        _ = request.form
        return request, request.conversation[0]

    @cached_property
    def conversation(self) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """The messages, and the types of parts that the model does not read. Raises `RequestInvalid`."""
        left_out = LeftOut("messages: ")
        return checked_messages(self.messages, left_out), left_out.names

    def check_prefill(self) -> None:
        """Raise `RequestInvalid` where the answer can't begin as the request asks."""
        if self.add_generation_prompt not in (None, not self.continue_final_message):
            words = "add_generation_prompt: must be false with continue_final_message: true, and true without it"
            raise RequestInvalid(words, param="add_generation_prompt")
        if self.continue_final_message:
            way_out = "leave out one of the two"
            check_continuation(self.form, self.choice(), "continue_final_message", way_out)

    @property
    def is_old(self) -> bool:
        """Whether the request has the API's old form: `functions` in place of `tools`, and one call in an answer."""
        return bool(self.functions) and not self.tools

    @cached_property
    def read_tools(self) -> ChatTools:
        """The tools that the client runs itself. Raises `RequestInvalid`."""
        return ChatTools(self.functions, "functions") if self.is_old else ChatTools(self.tools, "tools")

    def client_tools(self) -> list[ToolSpec]:
        """The same, as the model sees them."""
        return self.read_tools.specs

    def call_shapes(self) -> CallShapes:
        """How calls are shown."""
        return CallShapes(self.read_tools.free_form, old=self.is_old)

    def gateway_scope(self) -> ToolScope:
        """The gateway's tools that the request wants."""
        return scope_of(self.gateway_tools, None)

    def choice(self) -> ToolChoice:
        """`tool_choice` in the agent's terms. Raises `RequestInvalid`."""
        return read_choice(self.function_call if self.is_old else self.tool_choice)

    def options(self, token_map: TokenMap) -> AnswerOptions:
        """How the answer is to be made. Raises `RequestInvalid` for a bias on anything but the map's ordinary ids."""
        return AnswerOptions(
            choice=self.choice(),
            max_tokens=self.most,
            sampling=self.sampling_by(token_map),
            stops=self.stops,
            parallel=False if self.is_old else self.parallel_tool_calls,
            form=self.form,
            logprobs=self.top_logprobs if self.logprobs else None,
            ids=self.return_token_ids or self.stream_format != "json",
            show_calls=False if self.is_old else self.show_calls,
        )

    @property
    def template_options(self) -> dict[str, Any]:
        """Options for the chat template."""
        return {**thinking_options(self.reasoning_effort), **(self.chat_template_kwargs or {})}

    def without_effect(self, used: Container[str]) -> tuple[str, ...]:
        """Names of the fields without effect. `used`: the options that the template knows."""
        given = self.chat_template_kwargs or {}
        options = [f"chat_template_kwargs.{name}" for name in sorted(given) if name not in used]
        effort = ["reasoning_effort"] if ignores_effort(self.reasoning_effort, used) else []
        return (*self.ignored, *options, *effort, *self.read_tools.left_out, *self.conversation[1])

    @property
    def most(self) -> int | None:
        """Maximum number of ids to generate; None where the client does not say."""
        return self.max_completion_tokens or self.max_tokens
