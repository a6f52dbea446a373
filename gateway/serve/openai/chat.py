"""`POST /v1/chat/completions` of OpenAI's API: what a client may send, and the endpoint that answers it.

OpenAI's shape (API reference, "Create chat completion"). Fields that we don't know are ignored, as OpenAI's servers do;
fields that we know and can't honour are refused by name, so that nobody gets a different answer from the one they asked
for. Fields that are not specific to chats are in `serve/generation/request_fields.py`. `serve/generation/answers.py`
sends the answers as JSON, `serve/codec` as frames. Plain completions are in `completions.py`, requests about the model
itself in `model_endpoint.py`.
"""

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import (
    EVERY_TOOL,
    NO_DEFERRAL,
    NO_TOOL,
    OURS,
    Agent,
    AnswerOptions,
    Conversation,
    Deferral,
    ToolChoice,
    ToolScope,
)
from gateway.agent.events import Emit
from gateway.config import LimitsConfig
from gateway.context.history.client_messages import LeftOut, checked_messages
from gateway.engine.interface import Message
from gateway.errors import EngineError, GatewayError, RequestInvalid
from gateway.escape import escape_text
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.codec.frames import FrameResponder
from gateway.serve.generation.answers import Answering, ApiForm, StreamedAnswer, WholeAnswer
from gateway.serve.generation.request_fields import FAIL_FAST, HINTS, OTHER_GRAMMARS, GenerationFields
from gateway.serve.generation.tools_and_formats import (
    MOST_TOOLS,
    GatewayTools,
    check_continuation,
    check_values,
    ignores_effort,
    read_choice,
    read_client_tool,
    thinking_options,
)
from gateway.serve.http.request_parts import must_be_json, principal_of, read_body
from gateway.serve.openai.chat_reply import CallShapes, ChatReply, ChoicesReply, event_bytes, openai_form
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.spelling import spelled
from leaf_sdk.vocab import TokenMap

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
        values = 0
        for number, tool in enumerate(tools):
            place = f"{where}[{number}]"
            read = read_client_tool(tool, place)
            if read is None:
                left_out.append(f"{place}: {escape_text(str(tool.get('type')), _SHOWN)}")
                continue
            self.specs.append(read.spec)
            values += read.values
            if read.kind == "custom":
                free_form.append(read.spec.name)
            if read.deferred:
                deferred.append(read.spec.name)
            left_out += (f"{where}.{name}" for name in read.unused)
        check_values(values)
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
        _, _ = request.read_tools, request.choice
        if request.top_logprobs and not request.logprobs:
            raise RequestInvalid("top_logprobs: requires logprobs: true", param="top_logprobs")
        if request.add_generation_prompt not in (None, not request.continue_final_message):
            words = "add_generation_prompt: must be false with continue_final_message: true, and true without it"
            raise RequestInvalid(words, param="add_generation_prompt")
        if request.continue_final_message:
            way_out = "leave out one of the two"
            check_continuation(request.form, request.choice, "continue_final_message", way_out)
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

    @property
    def is_old(self) -> bool:
        """Whether the request has the API's old form: `functions` in place of `tools`, and one call in an answer."""
        return bool(self.functions) and not self.tools

    @cached_property
    def read_tools(self) -> ChatTools:
        """The tools that the client runs itself. Raises `RequestInvalid`."""
        return ChatTools(self.functions, "functions") if self.is_old else ChatTools(self.tools, "tools")

    def gateway_scope(self) -> ToolScope:
        """The gateway's tools that the request wants."""
        return NO_TOOL if self.gateway_tools == "none" else EVERY_TOOL

    @cached_property
    def choice(self) -> ToolChoice:
        """`tool_choice` in the agent's terms. Raises `RequestInvalid`."""
        return read_choice(self.function_call if self.is_old else self.tool_choice)

    def options(self, token_map: TokenMap) -> AnswerOptions:
        """How the answer is to be made. Raises `RequestInvalid` for a bias on anything but the map's ordinary ids."""
        return AnswerOptions(
            choice=self.choice,
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


# The endpoint: requests become turns of the agent.


class ChatEndpoint:
    """The route of chat completions, over one agent."""

    def __init__(self, agent: Agent, limits: LimitsConfig, metrics: Metrics, frames: FrameResponder) -> None:
        self._agent = agent
        self._limits = limits
        self._metrics = metrics
        self._frames = frames

    def routes(self) -> list[Route]:
        """The routes that `app/process.py` mounts."""
        return [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]

    async def _chat(self, request: Request) -> Response:
        form = openai_form()
        try:
            must_be_json(request)
            chat, messages = ChatRequest.checked(await read_body(request, self._limits.body_bytes))
            principal = principal_of(request.scope)
            conversations = [await open_chat(self._agent, principal, chat, messages) for _ in range(chat.n)]
            options = chat.options(conversations[0].ready.token_map)
        except GatewayError as error:
            self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
            return form.refused(error)
        return self._answered(request, chat, conversations, options, form)

    def _answered(
        self,
        request: Request,
        chat: ChatRequest,
        conversations: Sequence[Conversation],
        options: AnswerOptions,
        form: ApiForm,
    ) -> Response:
        conversation = conversations[0]
        prompt = tuple(conversation.ids)

        async def make(emit: Emit) -> None:
            for number, each in enumerate(conversations):
                await self._agent.answer(each, _drawn_anew(options, number) if number else options, emit)

        answering = Answering(make, self._metrics.chat_request)
        created = int(time.time())  # noqa: TID251
        if chat.stream_format != "json":
            token_map = conversation.ready.token_map
            # Results of tools add ids: the stream has a known bound only where there are no tools.
            most = None if conversation.asked.tools else chat.most
            plain = ChatReply(
                conversation.ready.facts.model, created, usage_chunk=False, answer_id=conversation.answer_id
            )
            return self._frames.respond(
                *(request, chat, answering, token_map, prompt),
                expected_ids=most,
                name_calls=False,
                json_event=event_bytes(plain),
            )
        answer = StreamedAnswer if chat.stream else WholeAnswer
        return answer(answering, lambda: _reply(chat, conversations, prompt, created), form)


def _reply(
    chat: ChatRequest, conversations: Sequence[Conversation], prompt: Sequence[int], created: int
) -> ChatReply | ChoicesReply:
    ready = conversations[0].ready
    unused = chat.without_effect(ready.template.options)
    replies = [
        ChatReply(
            ready.facts.model,
            created,
            usage_chunk=chat.usage_chunk,
            prompt_ids=prompt if chat.return_token_ids else None,
            ignored=unused,
            answer_id=conversations[0].answer_id,
            spell=partial(spelled, ready.token_map) if chat.logprobs else None,
            shapes=CallShapes(chat.read_tools.free_form, old=chat.is_old),
            streams=chat.stream,
        )
        for _ in conversations
    ]
    if chat.n == 1:
        return replies[0]
    return ChoicesReply(replies, len(prompt), usage_chunk=chat.usage_chunk)


async def open_chat(agent: Agent, principal: Principal, chat: ChatRequest, messages: Sequence[Message]) -> Conversation:
    """Open the conversation of a request. Raises `GatewayError`."""
    return await agent.open(
        messages,
        choice=chat.choice,
        client_tools=chat.read_tools.specs,
        deferral=chat.read_tools.deferral,
        gateway_tools=chat.gateway_scope(),
        principal=principal,
        options=chat.template_options,
        continues=chat.continue_final_message,
        model=chat.model,
    )


def _drawn_anew(options: AnswerOptions, number: int) -> AnswerOptions:
    """Add the answer's number to the seed, if the request has one: with one seed all answers would be the same."""
    seed = options.sampling.seed
    if seed is None:
        return options
    return replace(options, sampling=replace(options.sampling, seed=(seed + number) % 2**32))
