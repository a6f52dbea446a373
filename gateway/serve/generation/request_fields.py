"""Fields that the requests of several generating endpoints share, and how an invalid one is reported.

OpenAI's sampling fields; Codec's fields for the form of the stream (`stream_format`, `tool_watcher`), vLLM's
`return_token_ids`, and `stream_flush`, which is the gateway's own. Knows nothing of HTTP.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nsmallest
from math import isfinite
from reprlib import Repr
from sys import float_info
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, cast

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, from_json

from gateway.engine.interface import Sampling
from gateway.errors import RequestInvalid
from gateway.escape import escape_text
from gateway.protocol.messages import without_escapes, without_strings
from gateway.serve.generation.tools_and_formats import FORM_FIELDS, read_only_form
from gateway.serve.http.request_parts import MOST_VALUES
from gateway.toolcalls.formats.structured_output import AnswerForm
from leaf_sdk.vocab import TokenMap

# Numbers that JSON does not have, found in a body before it is used, and reported by their place.
#
# JSON's grammar has no `NaN` and no `Infinity`, but parsers accept them, and read `1e999` as Infinity; the engine's
# parser accepts none of the three. A body is first searched for what could be such a number, which costs little; only a
# body that holds one outside its strings is parsed, to tell the place. Pure.

_WORDS: Final = (b"NaN", b"Infinity")
_ALIKE: Final = bytes.maketrans(b"123456789E", b"000000000e")
_HINTS: Final = (b"e000", b"e+000", b"0" * 200)
"""Every number over 10^308 contains one of these, once its digits 1 to 9 are replaced by 0."""
_DIGITS: Final = 400
"""An integer with so many digits is too large, whatever follows them."""
_LONG: Final = 300
"""Digits from which on an integer may be too large."""
_APART: Final = bytes(
    byte if byte in b"0123456789.+-e" else ord("e") if byte == ord("E") else ord(" ") for byte in range(256)
)
"""Leaves of a JSON text without its strings only the numbers, with blanks between them."""
_LOOKS: Final = 100_000
"""Maximum number of values that are looked at to tell the place of a number."""
_SHOWN: Final = 200
"""Maximum characters of a place that an error message shows."""
_LARGEST: Final = int(float_info.max)
_WAY_OUT: Final = "NaN and Infinity are not JSON numbers, and 1e999 is read as Infinity: send null or a smaller number"


def must_be_finite(body: bytes) -> None:
    """Refuse a JSON text that holds NaN, Infinity, or a number larger than the largest float.

    Raises:
        RequestInvalid: names the place of the number, unless it is far behind.
    """
    if not _may_hold_others(body) or not _holds_others(without_strings(without_escapes(body))):
        return
    try:
        value: object = from_json(body)
    except ValueError:
        return  # not JSON at all: the body's own reader reports it
    shown = escape_text(".".join(_first_other(value) or ()), _SHOWN)
    raise RequestInvalid(f"{shown or 'the body'}: {_WAY_OUT}", param=shown or None)


def _may_hold_others(body: bytes) -> bool:
    if any(word in body for word in _WORDS):
        return True
    alike = body.translate(_ALIKE)
    return any(hint in alike for hint in _HINTS)


def _holds_others(bare: bytes) -> bool:
    """Whether a JSON text without its strings holds such a number."""
    if any(word in bare for word in _WORDS):
        return True
    # Cut apart at once: a search would begin anew at every digit of a long number.
    numbers = bare.translate(_APART).split(None, MOST_VALUES)
    return any(_is_large(number) for number in numbers if len(number) >= _LONG or b"e" in number)


def _is_large(number: bytes) -> bool:
    try:
        return _is_other(float(number) if b"e" in number else int(number.partition(b".")[0][:_DIGITS]))
    except ValueError:
        return False  # not JSON


def _first_other(value: object) -> tuple[str, ...] | None:
    """The path, in keys and indexes, of the first number that is not finite; None where the first `_LOOKS` are."""
    path: list[str] = [""]
    # One iterator per level: the walk takes next to no memory, whatever the body holds.
    levels: list[Iterator[tuple[str | int, object]]] = [iter((("", value),))]
    for _ in range(_LOOKS):
        if not levels:
            break
        key, item = next(levels[-1], (None, None))
        if key is None:
            levels.pop()
            path.pop()
            continue
        path[-1] = str(key)
        if isinstance(item, float | int):
            if _is_other(item):
                return tuple(path[1:])
        elif (inside := _parts_of(item)) is not None:
            levels.append(inside)
            path.append("")
    return None


def _parts_of(item: object) -> Iterator[tuple[str | int, object]] | None:
    if isinstance(item, dict):
        return iter(cast("dict[str, object]", item).items())
    return iter(enumerate(cast("list[object]", item))) if isinstance(item, list) else None


def _is_other(number: float) -> bool:
    return not isfinite(number) if isinstance(number, float) else abs(number) > _LARGEST


OTHER_GRAMMARS: Final = dict.fromkeys(
    ("grammar", "guided_grammar"),
    "use `response_format`, `json_schema`, `guided_json`, `guided_choice` or `guided_regex`",
)
"""Grammars in an engine's own notation. They are refused: an ambiguous one takes the engine from everybody else for
minutes, and whether a grammar is ambiguous can't be told from its text."""
HINTS: Final = frozenset(
    ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention")
)
"""OpenAI's fields that have no effect here."""

MOST_TEMPERATURE: Final = 100
"""OpenAI takes 2; llama.cpp and vLLM take more, and clients for stories use it."""

_EITHER: Final = frozenset({"tool_choice", "stop", "prompt", "tool_watcher"})

FAIL_FAST: Final[Any] = Field(fail_fast=True)
"""Stops at the first wrong entry of a list or table: an error for every entry would take a thousand bytes for two bytes
of the body."""
Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**32)]], FAIL_FAST, Field(max_length=2**20)]
"""Ids of a prompt: no model has room for more of them."""

StreamFormat = Literal["json", "msgpack", "protobuf"]
FlushName = Literal["interactive", "batch", "at_once"]


_IGNORED: Final = 32
_NAME: Final = 64
"""Bounds, since the client chooses both: how many fields without effect are named, and characters of each name."""
_BIASES: Final = 1024
"""Maximum number of entries in a request's `logit_bias` (OpenAI takes 300)."""
_STOPS: Final = 64
"""Maximum number of stop strings (OpenAI takes 4): all generated text is searched for each of them."""
_STOP_LENGTH: Final = 1000


def _checked_stop(stop: str | list[str] | None) -> str | list[str] | None:
    texts = [stop] if isinstance(stop, str) else stop or []
    if len(texts) > _STOPS or any(len(text) > _STOP_LENGTH for text in texts):
        words = "expected at most {texts} texts of at most {length} characters each"
        raise PydanticCustomError("stop", words, {"texts": _STOPS, "length": _STOP_LENGTH})
    return stop


_NEEDED: Final = frozenset({"input", "messages", "prompt"})
"""Fields of which an empty value is reported, even where another field may take their place."""
_UNSET: Final = frozenset({"max_tokens", "max_completion_tokens", "max_output_tokens", "seed"})
"""Fields for which -1 says the same as null."""


class ApiModel(BaseModel):
    """A part of a request. Unknown fields are ignored."""

    # Compiled at the first request: a gateway that only serves MCP never needs the models.
    model_config = ConfigDict(extra="ignore", frozen=True, strict=False, defer_build=True)


_T = TypeVar("_T", bound=ApiModel)


class RequestModel(ApiModel):
    """A request. There are three classes of fields.

    Fields of the model are served. Those in `refused`, which would change what the answer means, are refused by name
    unless they are empty or false. All others are accepted without effect and named in `ignored`, which the answer
    shows: agents always send some.
    """

    refused: ClassVar[Mapping[str, str]] = {}
    """Fields that are refused, each with what to do instead."""
    hints: ClassVar[frozenset[str]] = frozenset()
    """Fields that are known to have no effect here, for the documentation."""

    ignored: tuple[str, ...] = ()
    """Names of this request's fields that have no effect. A client cannot set it."""

    @model_validator(mode="before")
    @classmethod
    def _sorted(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        # Clients send null for fields that they leave out, those of llama.cpp and LM Studio -1 for some of them.
        sent = cast("dict[str, Any]", body).items()
        given = {name: value for name, value in sent if not cls._is_unset(name, value)}
        for name, way_out in cls.refused.items():
            if given.get(name):
                words = PydanticCustomError("refused", "this field is not supported; {way_out}", {"way_out": way_out})
                raise ValidationError.from_exception_data(
                    cls.__name__, [InitErrorDetails(type=words, loc=(name,), input=given[name])]
                )
        unknown = given.keys() - cls.model_fields.keys() - cls.refused.keys() | given.keys() & {"ignored"}
        named = tuple(escape_text(name, _NAME) for name in nsmallest(_IGNORED, unknown))
        return {**given, "ignored": named}

    @classmethod
    def _is_unset(cls, name: str, value: object) -> bool:
        if value is None or (value == -1 and name in _UNSET):
            return True
        if value not in ([], {}):
            return False
        # Languages with one kind of collection write `[]` for an empty object.
        field = cls.model_fields.get(name)
        return field is not None and not field.is_required() and name not in _NEEDED

    @classmethod
    def of_body(cls, body: bytes) -> Self:
        """Read a request from an HTTP body. Raises `RequestInvalid` that names the first invalid field."""
        must_be_finite(body)
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise invalid(error) from error


def bounded_top_k(top_k: int | None) -> int | None:
    """The bound in the engine's terms: other servers write -1 for none."""
    return 0 if top_k == -1 else top_k


class _WatchedIds(ApiModel):
    start_id: Annotated[int, Field(ge=0, lt=2**32)]
    end_id: Annotated[int, Field(ge=0, lt=2**32)]


class _StreamOptions(ApiModel):
    include_usage: bool = False


class SamplingFields(RequestModel):
    """How ids are sampled: OpenAI's fields, and some that other servers have added."""

    temperature: Annotated[float, Field(ge=0, le=MOST_TEMPERATURE)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1, lt=2**31)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None

    @property
    def sampling(self) -> Sampling:
        """The parameters for sampling."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            # Clients draw seeds from clocks and 64-bit generators; engines take 32 bits.
            seed=None if self.seed is None else self.seed % 2**32,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            top_k=bounded_top_k(self.top_k),
            min_p=self.min_p,
        )


_Biases = Annotated[dict[str, Annotated[float, Field(ge=-100, le=100)]], Field(max_length=_BIASES, fail_fast=True)]


def _table_of_pairs(given: object) -> object:
    """llama.cpp also takes a list of pairs, and false for a token that must not come."""
    if not isinstance(given, list):
        return given
    pairs = cast("list[Any]", given)
    if not all(isinstance(pair, list) and len(cast("list[Any]", pair)) == 2 for pair in pairs):
        return pairs
    return {str(token_id): -100.0 if bias is False else bias for token_id, bias in pairs}


_DEFAULT_START: Final = "<tool_call>"
_DEFAULT_END: Final = "</tool_call>"


@dataclass(frozen=True, slots=True)
class WatchIds:
    """Markers by their ids."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class WatchTexts:
    """Markers by their texts."""

    start: str
    end: str


class GenerationFields(SamplingFields):
    """Fields that chat completions and plain completions share."""

    model: str | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    logit_bias: Annotated[_Biases | None, BeforeValidator(_table_of_pairs)] = None
    stop: Annotated[str | Annotated[list[str], FAIL_FAST] | None, AfterValidator(_checked_stop)] = None
    response_format: Any = None
    json_schema: Any = None
    guided_json: Any = None
    guided_choice: Any = None
    guided_regex: Any = None
    structured_outputs: Any = None
    return_token_ids: bool = False
    stream_format: StreamFormat = "json"
    stream_flush: FlushName = "interactive"
    tool_watcher: bool | _WatchedIds = False
    tool_watcher_start: str = _DEFAULT_START
    tool_watcher_end: str = _DEFAULT_END

    @cached_property
    def form(self) -> AnswerForm | None:
        """The form that the answer's text must have; None: any. Raises `RequestInvalid` for an unenforceable one."""
        return read_only_form({name: getattr(self, name) for name in FORM_FIELDS})

    @property
    def usage_chunk(self) -> bool:
        """Whether the client asked for usage in a chunk of its own."""
        return self.stream_options is not None and self.stream_options.include_usage

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop strings."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    def sampling_by(self, token_map: TokenMap) -> Sampling:
        """The sampling parameters under a map. Raises `RequestInvalid` for a bias on anything but its ordinary ids."""
        if not self.logit_bias:
            return self.sampling
        return replace(self.sampling, logit_bias=tuple(_biases(self.logit_bias, token_map)))

    @property
    def watched(self) -> WatchIds | WatchTexts | None:
        """The markers that enclose the ids of a tool call; None where the request asks for no watcher."""
        watcher = self.tool_watcher
        if isinstance(watcher, _WatchedIds):
            return WatchIds(watcher.start_id, watcher.end_id)
        return WatchTexts(self.tool_watcher_start, self.tool_watcher_end) if watcher else None


def _biases(given: Mapping[str, float], token_map: TokenMap) -> Iterator[tuple[int, float]]:
    for name, bias in given.items():
        token_id = int(name) if name.isascii() and name.isdecimal() and len(name) < _NAME else -1
        if not token_map.has_id(token_id):
            words = f"logit_bias: {name!r:.80} is not an id of the map {token_map.map_id!r}"
            raise RequestInvalid(words, param="logit_bias")
        if token_id in token_map.special_ids:
            words = f"logit_bias: {token_id} is a control token, and only ordinary tokens may be biased: leave it out"
            raise RequestInvalid(words, param="logit_bias")
        yield token_id, bias


class _Shown(Repr):
    """What an error shows of a field, without writing out one that is as long as the body."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlist = self.maxdict = 40
        self.maxstring = self.maxlong = self.maxother = 100


def invalid(error: ValidationError) -> RequestInvalid:
    """Return an error that names the first invalid field."""
    found = error.errors(include_url=False, include_context=False)
    # Of the alternatives that were tried, the one that was nearly right says what to do.
    first = next((each for each in found if each["type"] == "too_long"), found[0])
    # For a field with alternatives, the library's path also names the alternative that it tried.
    place = first["loc"][:1] if first["loc"] and first["loc"][0] in _EITHER else first["loc"]
    where = ".".join(str(part) for part in place) or "the body"
    came = _Shown().repr(first.get("input"))
    shown = came if len(came) <= 80 else came[:77] + "..."
    return RequestInvalid(f"{where}: {first['msg']}; got {shown}", param=where)


def checked_part(shape: type[_T], part: Mapping[str, Any], where: str) -> _T:
    """Read a part of a request, at a place in it. Raises `RequestInvalid` that names the first invalid field."""
    try:
        return shape.model_validate({name: value for name, value in part.items() if value is not None})
    except ValidationError as error:
        found = invalid(error)
        raise RequestInvalid(f"{where}.{found.message}", param=f"{where}.{found.param}") from error
