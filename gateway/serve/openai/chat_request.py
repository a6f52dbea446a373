"""What a client may send to `POST /v1/chat/completions`, checked and turned into the agent's terms.

OpenAI's shape (API reference, "Create chat completion"). Fields that we don't know are ignored, as OpenAI's servers do;
fields that we know and can't honour are refused by name, so that nobody gets a different answer from the one they asked
for. Knows nothing of HTTP. Fields that are not specific to chats are in `serve/generation/fields.py`.
"""

from collections.abc import Container, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from gateway.agent import AnswerOptions, ToolChoice, ToolScope
from gateway.context.history.client_messages import checked_messages
from gateway.context.history.contents import LeftOut
from gateway.errors import RequestInvalid
from gateway.serve.generation.fields import FAIL_FAST, HINTS, OTHER_GRAMMARS, GenerationFields
from gateway.serve.generation.request_options import (
    GatewayTools,
    check_continuation,
    ignores_effort,
    scope_of,
    thinking_options,
)
from gateway.serve.generation.schemas import MOST_TOOLS
from gateway.serve.generation.tool_choice import read_choice
from gateway.serve.openai.call_shapes import CallShapes
from gateway.serve.openai.chat_tools import ChatTools
from gateway.toolcalls import ToolSpec
from leaf_sdk.vocab import TokenMap

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
