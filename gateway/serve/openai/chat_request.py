"""What a client may send to `POST /v1/chat/completions`, checked and turned into the agent's terms.

OpenAI's shape (API reference, "Create chat completion"). Fields that we don't know are ignored, as OpenAI's servers do;
fields that we know and can't honour are refused by name, so that nobody gets another answer than the one asked for.
Knows nothing of HTTP. The fields that are not chat's own stand in `serve/generation/fields.py`.
"""

from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.agent import EVERY_TOOL, NO_TOOL, AnswerOptions, ToolChoice, ToolScope
from gateway.agent.history import checked_messages
from gateway.serve.generation.fields import ApiModel, GenerationFields
from gateway.serve.generation.schemas import MOST_TOOLS, check_schemas
from gateway.toolcalls import AnswerForm, ToolSpec
from leaf_sdk.vocab import TokenMap


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


class _Text(ApiModel):
    type: Literal["text"]


class _JsonObject(ApiModel):
    type: Literal["json_object"]


class _NamedSchema(ApiModel):
    name: str = ""
    # The field is called so, and a model has a method of that name.
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class _JsonSchema(ApiModel):
    type: Literal["json_schema"]
    json_schema: _NamedSchema


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
    response_format: Annotated[_Text | _JsonObject | _JsonSchema, Field(discriminator="type")] | None = None

    @classmethod
    def checked(cls, body: bytes) -> tuple["ChatRequest", list[dict[str, Any]]]:
        """The request of an HTTP body, and its messages. Raises `RequestInvalid` naming the first field at fault."""
        request = cls.of_body(body)
        check_schemas(tool.function.parameters for tool in request.tools)
        # Named here, before anything is asked of anybody.
        _ = request.form
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

    @cached_property
    def form(self) -> AnswerForm | None:
        """What the answer's text must be. Raises `RequestInvalid` for a schema that it can't be held to."""
        match self.response_format:
            case _JsonObject():
                return AnswerForm()
            case _JsonSchema(json_schema=asked):
                return AnswerForm.of_schema(asked.schema_, "response_format")
            case _:
                return None

    def options(self, token_map: TokenMap) -> AnswerOptions:
        """How the answer is to be made. Raises `RequestInvalid` for what the map has no id of."""
        return AnswerOptions(
            choice=self.choice(),
            max_tokens=self.most,
            sampling=self.sampling_by(token_map),
            stops=self.stops,
            parallel=self.parallel_tool_calls,
            form=self.form,
            ids=self.return_token_ids or self.stream_format != "json",
            show_calls=self.show_calls,
        )

    @property
    def most(self) -> int | None:
        """Ids that may be generated at most, where the client says."""
        return self.max_completion_tokens or self.max_tokens
