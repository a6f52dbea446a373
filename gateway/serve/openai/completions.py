"""`POST /v1/completions`: continues a prompt of text or ids; the answer is JSON, an event stream or frames.

`/v1/completions/codec` is the same with its request in msgpack or protobuf. Turns requests into runs of the completer.
`serve/generation/answers.py` sends the answers as JSON, `serve/codec` as frames.
"""

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, cast

from pydantic import BeforeValidator, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Completer, CompletionOptions, Prompt
from gateway.agent.events import AgentEvent, Emit, Finished, IdsGenerated
from gateway.config import LimitsConfig
from gateway.engine.pool.pool import EnginePool
from gateway.errors import EngineError, GatewayError, RequestInvalid
from gateway.observe.metrics import Metrics
from gateway.serve.codec.frames import FrameResponder
from gateway.serve.generation.answers import Answering, ApiForm, Chunk, StreamedAnswer, WholeAnswer
from gateway.serve.generation.request_fields import HINTS, OTHER_GRAMMARS, GenerationFields, Ids, invalid
from gateway.serve.http.request_parts import (
    ITEMS,
    BodyUnread,
    media_type,
    must_be_json,
    principal_of,
    read_body,
    unpack,
)
from gateway.serve.openai.chat_reply import OpenAiReply, event_bytes, openai_form, usage_of
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


# What a client may send to `POST /v1/completions`, checked and turned into the agent's terms.
#
# OpenAI's older shape, whose prompt is a text or ids; fields that we can't honour are refused by name. Knows nothing of
# HTTP. Fields that it shares with chats are in `serve/generation/request_fields.py`.


def _one_of(prompt: Any) -> Any:
    """A list of one prompt is that prompt: some clients send nothing else."""
    kind = type(cast("object", prompt))
    several = cast("list[Any]", prompt) if kind is list else []
    is_one = len(several) == 1 and type(several[0]) in (str, list)
    return several[0] if is_one else prompt


class CompletionRequest(GenerationFields):
    """One request, checked."""

    prompt: Annotated[str | Ids, BeforeValidator(_one_of)]
    refused: ClassVar[Mapping[str, str]] = {
        "echo": "put the prompt in front of the text yourself",
        "suffix": "the model only continues a prompt",
        "logprobs": "only `/v1/chat/completions` returns them",
        **OTHER_GRAMMARS,
    }
    hints: ClassVar[frozenset[str]] = HINTS

    n: Literal[1] | None = None
    best_of: Literal[1] | None = None

    def options(self, token_map: TokenMap) -> CompletionOptions:
        """How to make the completion. Raises `RequestInvalid` for a bias that is none, or a form."""
        frames = self.stream_format != "json"
        return CompletionOptions(
            max_tokens=self.max_tokens,
            sampling=self.sampling_by(token_map),
            stops=self.stops,
            form=self.form,
            text=not frames,
            ids=frames or self.return_token_ids,
        )


# The body of `POST /v1/completions/codec`: msgpack or protobuf, to a completion request.
#
# The content type decides how the body is read; any other type is refused. Shape and bounds are checked as for JSON.
# The stream is in the body's own format unless the request names another. Pure. Source: Codec v0.5 (codec.md A.4, "Path
# B").

_NAMES: Final = {
    "application/x-msgpack": "msgpack",
    "application/msgpack": "msgpack",
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
}


def read_codec_request(content_type: str, body: bytes) -> CompletionRequest:
    """Read a body.

    Raises:
        BodyUnread: the content type is neither msgpack nor protobuf.
        RequestInvalid: the body can't be decoded, or a field is invalid; names the field.
    """
    form = _NAMES.get(media_type(content_type))
    if form is None:
        raise BodyUnread(
            f"Content-Type {content_type!r:.80} is not accepted here: send application/x-msgpack or "
            "application/x-protobuf, or send JSON to /v1/completions"
        )
    fields = _read_msgpack(body) if form == "msgpack" else _read_protobuf(body)
    if "prompt_ids" not in fields:
        raise RequestInvalid("prompt_ids: expected the prompt as ids", param="prompt_ids")
    known = {**fields, "prompt": fields["prompt_ids"]}
    try:
        return CompletionRequest.model_validate({"stream_format": form, "stream": True, **known})
    except ValidationError as error:
        raise invalid(error) from error


def _read_msgpack(body: bytes) -> Mapping[str, Any]:
    try:
        fields = unpack(body)
    except (ValueError, TypeError, RecursionError) as error:  # everything that msgpack raises
        raise RequestInvalid(f"the body is not valid msgpack: {str(error) or type(error).__name__}") from error
    if not isinstance(fields, dict):
        raise RequestInvalid("the body must be a msgpack map with prompt_ids")
    return {str(key): value for key, value in cast("dict[object, Any]", fields).items()}


def _read_protobuf(body: bytes) -> Mapping[str, Any]:
    # Imported at the first such request: importing protobuf takes a tenth of a second, which would delay every start.
    from google.protobuf.message import DecodeError

    from leaf_sdk.wire.wide import WideRequest

    try:
        message = WideRequest.FromString(body)
    except DecodeError as error:
        raise RequestInvalid(f"the body is not a valid CodecRequest message: {error}") from error
    if len(message.prompt_ids) + len(message.stop) > ITEMS:
        raise RequestInvalid(f"the body holds more than {ITEMS} items: send fewer")
    fields: dict[str, Any] = {"prompt_ids": list(message.prompt_ids), "stop": list(message.stop)}
    for name in ("max_tokens", "temperature", "stream_format"):
        if message.HasField(name):
            fields[name] = getattr(message, name)
    return fields


# A completion in OpenAI's older shape (`text_completion`): chunks as it is generated, or whole.
#
# With `return_token_ids` a choice also has `token_ids`, and the first one `prompt_token_ids`, named as in vLLM; ids are
# sent with the text that follows them. Pure.


class CompletionReply(OpenAiReply):
    """The reply to one request. `created`: seconds since the epoch."""

    def __init__(self, model: str, created: int, *, usage_chunk: bool, prompt_ids: Sequence[int] | None = None) -> None:
        """`prompt_ids`: None unless the client wants ids."""
        self._head: Chunk = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": created,
            "model": model,
        }
        self._usage_chunk = usage_chunk
        self._prompt_ids = prompt_ids
        self._told_prompt = False
        self._pending: list[int] = []
        self._text: list[str] = []
        self._ids: list[int] = []
        self._finished: Finished | None = None

    def begin(self) -> list[Chunk]:
        """Return no chunks: nothing comes before the first text."""
        return []

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks to send for one event."""
        match event:
            case Content(text):
                self._text.append(text)
                return [self._chunk(text)]
            case IdsGenerated(ids):
                self._pending += ids
                self._ids += ids
                return []
            case Finished():
                self._finished = event
                return self._end(event)
            case _:
                return []

    def completion(self) -> Chunk:
        """The whole answer. Call it after feeding `Finished`."""
        if self._finished is None:
            raise RuntimeError("completion() before the answer was finished")
        choice: Chunk = {
            "index": 0,
            "text": "".join(self._text),
            "logprobs": None,
            "finish_reason": self._finished.reason,
        }
        if self._prompt_ids is not None:
            choice |= {"token_ids": self._ids, "prompt_token_ids": list(self._prompt_ids)}
        return {**self._head, "choices": [choice], "usage": usage_of(self._finished)}

    def _end(self, finished: Finished) -> list[Chunk]:
        last = self._chunk("", finished.reason)
        usage = usage_of(finished)
        if not self._usage_chunk:
            return [{**last, "usage": usage}]
        return [last, {**self._head, "choices": [], "usage": usage}]

    def _chunk(self, text: str, reason: str | None = None) -> Chunk:
        choice: Chunk = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        if self._prompt_ids is not None:
            choice["token_ids"], self._pending = self._pending, []
            if not self._told_prompt:
                self._told_prompt = True
                choice["prompt_token_ids"] = list(self._prompt_ids)
        return {**self._head, "choices": [choice]}


class CompletionsEndpoint:
    """The routes of plain completions."""

    def __init__(
        self,
        engines: EnginePool,
        limits: LimitsConfig,
        metrics: Metrics,
        frames: FrameResponder,
        tracing: "Tracing | None" = None,
    ) -> None:
        """`tracing`: makes a span for each completion."""
        self._completer = Completer(engines, limits, metrics, tracing)
        self._limits = limits
        self._metrics = metrics
        self._frames = frames

    def routes(self) -> list[Route]:
        """The routes that `app/process.py` mounts."""
        return [
            Route("/v1/completions", self._complete, methods=["POST"]),
            Route("/v1/completions/codec", self._complete_codec, methods=["POST"]),
        ]

    async def _complete(self, request: Request) -> Response:
        def read(body: bytes) -> CompletionRequest:
            must_be_json(request)
            return CompletionRequest.of_body(body)

        return await self._answered(request, read)

    async def _complete_codec(self, request: Request) -> Response:
        content_type = request.headers.get("content-type", "")
        return await self._answered(request, lambda body: read_codec_request(content_type, body), binary=True)

    async def _answered(
        self, request: Request, read: Callable[[bytes], CompletionRequest], *, binary: bool = False
    ) -> Response:
        form = openai_form()
        try:
            body = await read_body(request, self._limits.body_bytes, binary=binary)
            return self._respond(request, read(body), form)
        except GatewayError as error:
            self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
            return form.refused(error)

    def _respond(self, request: Request, fields: CompletionRequest, form: ApiForm) -> Response:
        prompt = self._completer.open(fields.prompt, principal_of(request.scope), fields.model)
        options = fields.options(prompt.ready.token_map)

        async def make(emit: Emit) -> Finished:
            return await self._completer.answer(prompt, options, emit)

        answering = Answering(make, self._metrics.chat_request)
        if fields.stream_format != "json":
            most = fields.max_tokens or self._limits.completion_tokens
            token_map = prompt.ready.token_map
            return self._frames.respond(
                *(request, fields, answering, token_map, prompt.ids),
                expected_ids=most,
                name_calls=True,
                json_event=event_bytes(_reply(prompt)),
            )
        new_reply = partial(_reply, prompt, usage_chunk=fields.usage_chunk, ids=fields.return_token_ids)
        answer = StreamedAnswer if fields.stream else WholeAnswer
        return answer(answering, new_reply, form)


def _reply(prompt: Prompt, *, usage_chunk: bool = False, ids: bool = False) -> CompletionReply:
    created = int(time.time())  # noqa: TID251 - the API wants a date
    shown = prompt.ids if ids else None
    return CompletionReply(prompt.ready.facts.model, created, usage_chunk=usage_chunk, prompt_ids=shown)
