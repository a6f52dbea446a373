"""Fields that requests of both generating endpoints share, and how a wrong one is named.

OpenAI's fields for sampling; Codec's for the form of the stream (`stream_format`, `tool_watcher`), vLLM's
`return_token_ids`, and `stream_flush`, which is ours. Knows nothing of HTTP.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from heapq import nsmallest
from typing import Annotated, Any, ClassVar, Final, Literal, Self, cast

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from gateway.engine.interface import Sampling
from gateway.errors import RequestInvalid
from gateway.observe.escape import escape_text
from gateway.serve.generation.finite import must_hold_numbers
from gateway.serve.generation.watch import DEFAULT_END, DEFAULT_START, WatchIds, WatchTexts
from leaf_sdk.vocab import TokenMap

OTHER_GRAMMARS: Final = dict.fromkeys(
    ("grammar", "guided_choice", "guided_grammar", "guided_json", "guided_regex", "json_schema", "structured_outputs"),
    "say `response_format` in a chat",
)
"""Names that servers have for forms of answers."""
HINTS: Final = frozenset(
    ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
)
"""Fields of OpenAI's that are of no effect here."""

_EITHER: Final = frozenset({"tool_choice", "stop", "prompt", "tool_watcher"})

FAIL_FAST: Final[Any] = Field(fail_fast=True)
"""Of a list or table: its first wrong entry ends it. A complaint of each takes a thousand bytes for two of a body."""
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], FAIL_FAST]

StreamFormat = Literal["json", "msgpack", "protobuf", "msgpack-delta"]
FlushName = Literal["interactive", "batch", "at_once"]


_IGNORED: Final = 32
_NAME: Final = 64
"""Fields without effect that are named, and characters of each name: both are the client's."""
_BIASES: Final = 1024
"""Ids of a request whose logits are changed (OpenAI takes 300)."""
_STOPS: Final = 64
"""Stop strings of a request (OpenAI takes 4): each is looked for in all that is generated."""
_STOP_LENGTH: Final = 1000


def _checked_stop(stop: str | list[str] | None) -> str | list[str] | None:
    texts = [stop] if isinstance(stop, str) else stop or []
    if len(texts) > _STOPS or any(len(text) > _STOP_LENGTH for text in texts):
        words = "expected at most {texts} texts of at most {length} characters each"
        raise PydanticCustomError("stop", words, {"texts": _STOPS, "length": _STOP_LENGTH})
    return stop


class ApiModel(BaseModel):
    """A part of a request; what it does not know is ignored."""

    # Compiled with the first request: a gateway that only serves MCP never is.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=False, defer_build=True)


class RequestModel(ApiModel):
    """A request. Its fields are of three classes.

    Those of the model are served. Those in `refused`, with which the answer would have to mean something else, are
    refused by name where they ask for anything. All others are accepted without effect and named in `ignored`, which
    the answer shows: agents always send some.
    """

    refused: ClassVar[Mapping[str, str]] = {}
    """Fields that are refused, and what to do instead."""
    hints: ClassVar[frozenset[str]] = frozenset()
    """Fields that are known to be without effect here, for the documents."""

    ignored: tuple[str, ...] = ()
    """Names of fields of this request that have no effect. Never the client's own to say."""

    @model_validator(mode="before")
    @classmethod
    def _sorted(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        # Clients write null for what they leave out.
        given = {name: value for name, value in cast("dict[str, Any]", body).items() if value is not None}
        for name, way_out in cls.refused.items():
            if given.get(name):
                words = PydanticCustomError("refused", "this is not served: {way_out}", {"way_out": way_out})
                raise ValidationError.from_exception_data(
                    cls.__name__, [InitErrorDetails(type=words, loc=(name,), input=given[name])]
                )
        unknown = given.keys() - cls.model_fields.keys() - cls.refused.keys() | given.keys() & {"ignored"}
        named = tuple(escape_text(name, _NAME) for name in nsmallest(_IGNORED, unknown))
        return {**given, "ignored": named}

    @classmethod
    def of_body(cls, body: bytes) -> Self:
        """The request of an HTTP body. Raises `RequestInvalid` naming the first field at fault."""
        must_hold_numbers(body)
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from error


class _WatchedIds(ApiModel):
    start_id: Annotated[int, Field(ge=0, lt=2**32)]
    end_id: Annotated[int, Field(ge=0, lt=2**32)]


class _StreamOptions(ApiModel):
    include_usage: bool = False


class SamplingFields(RequestModel):
    """How ids are drawn, in OpenAI's names and in those that others have added."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None

    @property
    def sampling(self) -> Sampling:
        """How ids are drawn."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            seed=self.seed,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            # As others spell it, -1 is no bound.
            top_k=0 if self.top_k == -1 else self.top_k,
            min_p=self.min_p,
        )


class GenerationFields(SamplingFields):
    """What both endpoints take."""

    model: str | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    logit_bias: (
        Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=_BIASES, fail_fast=True)] | None
    ) = None
    stop: Annotated[str | Annotated[list[str], FAIL_FAST] | None, AfterValidator(_checked_stop)] = None
    return_token_ids: bool = False
    stream_format: StreamFormat = "json"
    stream_flush: FlushName = "interactive"
    tool_watcher: bool | _WatchedIds = False
    tool_watcher_start: str = DEFAULT_START
    tool_watcher_end: str = DEFAULT_END

    @property
    def usage_chunk(self) -> bool:
        """Whether the client asked for usage in a chunk of its own."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def sampling_by(self, token_map: TokenMap) -> Sampling:
        """How ids are drawn under a map. Raises `RequestInvalid` for a bias of what is no ordinary id of it."""
        if not self.logit_bias:
            return self.sampling
        return replace(self.sampling, logit_bias=tuple(_biases(self.logit_bias, token_map)))

    @property
    def watched(self) -> WatchIds | WatchTexts | None:
        """The markers between which ids are a tool call's; None where no watcher is wanted."""
        watcher = self.tool_watcher
        if isinstance(watcher, _WatchedIds):
            return WatchIds(watcher.start_id, watcher.end_id)
        return WatchTexts(self.tool_watcher_start, self.tool_watcher_end) if watcher else None


def _biases(given: Mapping[str, float], token_map: TokenMap) -> Iterator[tuple[int, float]]:
    for name, bias in given.items():
        token_id = int(name) if name.isascii() and name.isdecimal() and len(name) < _NAME else -1
        if not token_map.has_id(token_id):
            words = f"logit_bias: {name!r:.80} is no id of the map {token_map.map_id!r}"
            raise RequestInvalid(words, param="logit_bias")
        if token_id in token_map.special_ids:
            words = f"logit_bias: {token_id} is a control token, which the model's format is made of; bias others"
            raise RequestInvalid(words, param="logit_bias")
        yield token_id, bias


def invalid(error: ValidationError) -> RequestInvalid:
    """Name the first field at fault."""
    first = error.errors(include_url=False, include_context=False)[0]
    # Of a field that may be one thing or another, the library also names the alternative that it tried.
    place = first["loc"][:1] if first["loc"] and first["loc"][0] in _EITHER else first["loc"]
    where = ".".join(str(part) for part in place) or "the body"
    came = repr(first.get("input"))
    shown = came if len(came) <= 80 else came[:77] + "..."
    return RequestInvalid(f"{where}: {first['msg']}; got {shown}", param=where)
