"""What a client may send to `POST /v1/responses`, checked, except for `input`, `tools` and `tool_choice`; and refusals.

OpenAI's shape (API reference, "Create a response"). `items.py`, `response_tools.py` and
`serve/generation/tools_and_formats.py` check these three. Errors name the fields of this API. Knows no HTTP.
"""

import json
import sys
from collections.abc import Container, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.agent.compaction import Compaction
from gateway.errors import RequestInvalid
from gateway.escape import escape_text
from gateway.serve.generation.answers import ApiForm
from gateway.serve.generation.request_fields import ApiModel, SamplingFields
from gateway.serve.generation.tools_and_formats import (
    MOST_TOOLS,
    GatewayTools,
    flat_form,
    ignores_effort,
    read_form,
    thinking_options,
)
from gateway.serve.http.error_answers import error_answer
from gateway.toolcalls.formats.structured_output import AnswerForm

_INCLUDED: Final = 64
_SHOWN: Final = 64
_PAIRS: Final = 16
_KEY: Final = 64
_VALUE: Final = 512

SEALED: Final = "reasoning.encrypted_content"
_COMPACTION: Final = "compaction"
_LOGPROBS: Final = "message.output_text.logprobs"


def _checked_metadata(metadata: dict[str, Any] | None) -> dict[str, str] | None:
    # Some clients send numbers; the answer repeats texts.
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in (metadata or {}).items()}
    if len(texts) > _PAIRS or any(len(key) > _KEY or len(value) > _VALUE for key, value in texts.items()):
        words = "expected at most {pairs} pairs, with keys of at most {key} and values of at most {value} characters"
        raise PydanticCustomError("metadata", words, {"pairs": _PAIRS, "key": _KEY, "value": _VALUE})
    return None if metadata is None else texts


class _Reasoning(ApiModel):
    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class _Managed(ApiModel):
    type: str | None = None
    compact_threshold: Annotated[int, Field(ge=0)] | None = None


class _Text(ApiModel):
    format: Any = None
    verbosity: str | None = None


class ResponsesRequest(SamplingFields):
    """One request, checked. Other modules check what `input`, `tools` and `tool_choice` hold."""

    refused: ClassVar[Mapping[str, str]] = {
        "background": "an answer is made while the client waits: leave it out, and set `stream`",
        "conversation": "send `previous_response_id`, or the items themselves",
        "prompt": "prompts are not stored here: write the text into `input` or `instructions`",
    }
    hints: ClassVar[frozenset[str]] = frozenset(
        {
            *("client_metadata", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"),
            *("safety_identifier", "service_tier", "stream_options", "truncation", "user"),
        }
    )

    input: Any = ()
    instructions: str | None = None
    model: str | None = None
    previous_response_id: Annotated[str | None, AfterValidator(lambda given: given or None)] = None
    store: bool = True
    stream: bool = False
    tools: Annotated[tuple[dict[str, Any], ...], Field(max_length=MOST_TOOLS, fail_fast=True)] = ()
    tool_choice: Any = "auto"
    parallel_tool_calls: bool | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tool_calls: Annotated[int, Field(ge=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: Annotated[dict[str, Any] | None, AfterValidator(_checked_metadata)] = None
    include: Annotated[tuple[str, ...], Field(max_length=_INCLUDED, fail_fast=True)] = ()
    reasoning: _Reasoning = _Reasoning()
    text: _Text = _Text()
    context_management: Annotated[tuple[_Managed, ...], Field(max_length=_INCLUDED, fail_fast=True)] = ()
    gateway_tools: GatewayTools = "all"

    @classmethod
    def checked(cls, body: bytes) -> "ResponsesRequest":
        """Read a request from an HTTP body. Raises `RequestInvalid` that names the first invalid field."""
        request = cls.of_body(body)
        # An invalid schema is reported here, before the engine or a tool is asked for anything.
        _ = request.form
        return request

    @cached_property
    def form(self) -> AnswerForm | None:
        """The form that the answer's text must have; None: any. Raises `RequestInvalid` for an unenforceable schema."""
        return read_form(self.text.format, "text.format")

    @property
    def compaction(self) -> Compaction | None:
        """From how many tokens on the conversation is summed up; None: it is not."""
        asked = next((each for each in self.context_management if each.type == _COMPACTION), None)
        if asked is None:
            return None
        return Compaction(sys.maxsize if asked.compact_threshold is None else asked.compact_threshold)

    @property
    def shown_text(self) -> dict[str, Any]:
        """`text` as the answer repeats it."""
        return {"format": flat_form(self.text.format) or {"type": "text"}}

    @property
    def summarized(self) -> bool:
        """Whether reasoning is shown as a summary, which is what clients display."""
        return (self.reasoning.summary or self.reasoning.generate_summary or "none") != "none"

    @property
    def sealed(self) -> bool:
        """Whether the client gets the reasoning sealed, to keep it and send it back."""
        return SEALED in self.include

    @property
    def logprobs(self) -> int | None:
        """How many of the likeliest ids to give with each id; None: no log probabilities at all."""
        return (self.top_logprobs or 0) if _LOGPROBS in self.include else self.top_logprobs

    @property
    def template_options(self) -> dict[str, str | bool]:
        """Options for the chat template."""
        return thinking_options(self.reasoning.effort)

    def without_effect(self, used: Container[str]) -> tuple[str, ...]:
        """Names of fields and nested fields without effect. `used`: the options that the template knows."""
        effort = ("reasoning.effort",) if ignores_effort(self.reasoning.effort, used) else ()
        verbosity = ("text.verbosity",) if self.text.verbosity is not None else ()
        included = (f"include.{escape_text(each, _SHOWN)}" for each in self.include if each not in (SEALED, _LOGPROBS))
        kinds = (escape_text(str(each.type), _SHOWN) for each in self.context_management if each.type != _COMPACTION)
        managed = (f"context_management: {kind}" for kind in kinds)
        return (*self.ignored, *effort, *verbosity, *included, *managed)


class NotStored(RequestInvalid):
    """An id that names nothing kept for this caller: unknown, gone or somebody else's; the error does not say which."""

    def __init__(self, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code


def refused(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and the body of an error."""
    status, body = error_answer(error)
    if isinstance(error, NotStored):
        return 404, {"error": {**body["error"], "code": error.code}}
    if body["error"]["param"] == "messages":
        # The agent calls the conversation `messages`; in this API it is `input`.
        return status, {"error": {**body["error"], "param": "input"}}
    return status, body


def broken_off(error: Exception, events: int) -> bytes:
    """The event that ends a stream which broke off after `events` events, where the response so far is not known."""
    said = refused(error)[1]["error"]
    told = {"type": "error", "code": "server_error", "message": said["message"], "param": None}
    return RESPONSES.events([{**told, "sequence_number": events}])


RESPONSES: Final = ApiForm(refused, names_events=True)
