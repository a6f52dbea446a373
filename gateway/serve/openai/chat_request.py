"""What a client may send to `POST /v1/chat/completions`, checked and turned into the agent's terms.

OpenAI's shape (API reference, "Create chat completion"). Fields that we don't know are ignored, as OpenAI's servers do;
fields that we know and can't honour are refused by name, so that nobody gets another answer than the one asked for.
Knows nothing of HTTP. The fields that are not chat's own stand in `serve/generation/fields.py`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.agent import EVERY_TOOL, NO_TOOL, AnswerOptions, ToolChoice, ToolScope
from gateway.agent.history import checked_messages
from gateway.errors import RequestInvalid
from gateway.serve.generation.fields import ApiModel, GenerationFields
from gateway.serve.generation.schemas import MOST_TOOLS, check_schemas
from gateway.toolcalls import ToolSpec


class _Function(ApiModel):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(ApiModel):
    type: Literal["function"]
    function: _Function


class _NamedFunction(ApiModel):
    name: str


class _NamedChoice(ApiModel):
    type: Literal["function"]
    function: _NamedFunction


class _AllowedTools(ApiModel):
    mode: Literal["auto", "required"]
    tools: Annotated[tuple[_NamedChoice, ...], Field(min_length=1, max_length=MOST_TOOLS)]


class _AllowedChoice(ApiModel):
    type: Literal["allowed_tools"]
    allowed_tools: _AllowedTools


class ChatRequest(GenerationFields):
    """One request, checked. `messages` is checked apart (`checked`), with places that a person finds."""

    messages: Any
    tools: Annotated[tuple[_Tool, ...], Field(max_length=MOST_TOOLS)] = ()
    tool_choice: Literal["auto", "none", "required"] | _NamedChoice | _AllowedChoice = "auto"
    parallel_tool_calls: bool | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    show_calls: bool | None = None
    gateway_tools: Literal["all", "none"] = "all"
    logprobs: Literal[False] | None = None
    response_format: dict[str, Any] | None = None

    @classmethod
    def checked(cls, body: bytes) -> tuple["ChatRequest", list[dict[str, Any]]]:
        """The request of an HTTP body, and its messages. Raises `RequestInvalid` naming the first field at fault."""
        request = cls.of_body(body)
        if request.response_format not in (None, {"type": "text"}):
            raise RequestInvalid(
                "response_format: only {'type': 'text'} is served; ask for JSON in a message, or use a tool",
                param="response_format",
            )
        check_schemas(tool.function.parameters for tool in request.tools)
        return request, checked_messages(request.messages)

    def client_tools(self) -> list[ToolSpec]:
        """The tools that the client runs itself."""
        return [
            ToolSpec(t.function.name, t.function.description or "", t.function.parameters or {"type": "object"})
            for t in self.tools
        ]

    def gateway_scope(self) -> ToolScope:
        """The gateway's tools that the request wants to see."""
        return NO_TOOL if self.gateway_tools == "none" else EVERY_TOOL

    def choice(self) -> ToolChoice:
        """`tool_choice` in the agent's terms."""
        chosen = self.tool_choice
        if isinstance(chosen, _NamedChoice):
            return ToolChoice.named(chosen.function.name)
        if isinstance(chosen, _AllowedChoice):
            allowed = chosen.allowed_tools
            return ToolChoice(allowed.mode, tuple(tool.function.name for tool in allowed.tools))
        return ToolChoice(chosen)

    def options(self) -> AnswerOptions:
        """How the answer is to be made."""
        return AnswerOptions(
            choice=self.choice(),
            max_tokens=self.most,
            sampling=self.sampling,
            stops=self.stops,
            parallel=self.parallel_tool_calls,
            ids=self.return_token_ids or self.stream_format != "json",
            show_calls=self.show_calls,
        )

    @property
    def most(self) -> int | None:
        """Ids that may be generated at most, where the client says."""
        return self.max_completion_tokens or self.max_tokens
