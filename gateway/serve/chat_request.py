"""What a client may send to `POST /v1/chat/completions`, checked and turned into the agent's terms.

OpenAI's shape (API reference, "Create chat completion"). Fields that we don't know are ignored, as OpenAI's servers do;
fields that we know and can't honour are refused by name, so that nobody gets another answer than the one asked for.
Knows nothing of HTTP. Above: `openai.py`.
"""

from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from gateway.agent import AnswerOptions, ToolChoice
from gateway.agent.history import checked_messages
from gateway.engine.protocol import Sampling
from gateway.errors import RequestInvalid
from gateway.toolcalls import ToolSpec

_EITHER = (("tool_choice",), ("stop",))


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


class _Function(_Model):
    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(_Model):
    type: Literal["function"]
    function: _Function


class _NamedFunction(_Model):
    name: str


class _NamedChoice(_Model):
    type: Literal["function"]
    function: _NamedFunction


class _StreamOptions(_Model):
    include_usage: bool = False


class ChatRequest(_Model):
    """One request, checked. `messages` is checked apart (`checked`), with places that a person finds."""

    messages: Any
    model: str | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    tools: list[_Tool] = []
    tool_choice: Literal["auto", "none", "required"] | _NamedChoice = "auto"
    parallel_tool_calls: bool | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    stop: str | list[str] | None = None
    n: Literal[1] | None = None
    logprobs: Literal[False] | None = None
    response_format: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, body: Any) -> Any:
        """Clients write null for what they leave out."""
        if not isinstance(body, dict):
            return body
        return {name: value for name, value in cast(dict[str, Any], body).items() if value is not None}

    @classmethod
    def checked(cls, body: bytes) -> tuple["ChatRequest", list[dict[str, Any]]]:
        """The request of an HTTP body, and its messages. Raises `RequestInvalid` naming the first field at fault."""
        try:
            request = cls.model_validate_json(body)
        except ValidationError as error:
            raise _invalid(error) from error
        if request.response_format not in (None, {"type": "text"}):
            raise RequestInvalid(
                "response_format: only {'type': 'text'} is served; ask for JSON in a message, or use a tool",
                param="response_format",
            )
        return request, checked_messages(request.messages)

    @property
    def usage_chunk(self) -> bool:
        """Whether the client asked for usage in a chunk of its own."""
        return self.stream_options is not None and self.stream_options.include_usage

    def client_tools(self) -> list[ToolSpec]:
        """The tools that the client runs itself."""
        return [
            ToolSpec(t.function.name, t.function.description or "", t.function.parameters or {"type": "object"})
            for t in self.tools
        ]

    def choice(self) -> ToolChoice:
        """`tool_choice` in the agent's terms."""
        chosen = self.tool_choice
        return ("named", chosen.function.name) if isinstance(chosen, _NamedChoice) else chosen

    def options(self) -> AnswerOptions:
        """How the answer is to be made."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return AnswerOptions(
            choice=self.choice(),
            max_tokens=self.max_completion_tokens or self.max_tokens,
            sampling=Sampling(
                temperature=self.temperature,
                top_p=self.top_p,
                seed=self.seed,
                presence_penalty=self.presence_penalty,
                frequency_penalty=self.frequency_penalty,
            ),
            stops=tuple(stops),
            parallel=self.parallel_tool_calls,
        )


def _invalid(error: ValidationError) -> RequestInvalid:
    first = error.errors(include_url=False, include_context=False)[0]
    # Of a field that may be one thing or another, the library also names the alternative that it tried.
    place = first["loc"][:1] if first["loc"][:1] in _EITHER else first["loc"]
    where = ".".join(str(part) for part in place) or "the body"
    came = repr(first.get("input"))
    shown = came if len(came) <= 80 else came[:77] + "..."
    return RequestInvalid(f"{where}: {first['msg']}; got {shown}", param=where)
