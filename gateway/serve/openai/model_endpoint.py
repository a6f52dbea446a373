"""Requests about the model itself: its description, tokenization, and embeddings.

`GET /v1/models` and `/v1/models/{id}`, `POST /tokenize` and `/detokenize` as vLLM has them, and `POST /v1/embeddings`,
which goes to an engine that serves it. Texts are tokenized as ordinary text, even where they spell a control token,
unless the request says otherwise.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

from anyio.lowlevel import checkpoint
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Agent
from gateway.agent.generate.engine_spans import plain_span
from gateway.config import LimitsConfig
from gateway.context.history.template_messages import check_length
from gateway.engine.pool.engine_choice import key_of
from gateway.engine.pool.pool import EnginePool
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineRefused, GatewayError, RequestInvalid
from gateway.serve.generation.answers import Chunk
from gateway.serve.generation.request_fields import FAIL_FAST, Ids, RequestModel
from gateway.serve.http.error_answers import error_body
from gateway.serve.http.request_parts import must_be_json, principal_of, read_body
from gateway.serve.openai.chat import ChatRequest, open_chat
from gateway.serve.openai.chat_reply import openai_form

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


_INPUTS = 2048
"""Maximum number of texts in one request for embeddings; OpenAI's limit."""


class TokenizeRequest(RequestModel):
    """What `POST /tokenize` takes: a text; or messages, with any other field of a chat (`ChatRequest`)."""

    model: str | None = None
    prompt: str | None = None
    messages: Any = None
    add_special_tokens: bool = False
    """Whether to add the ids that the engine puts before a text, and to read spelled control tokens as such.

    Applies to `prompt` only.
    """
    return_token_strs: bool = False


class DetokenizeRequest(RequestModel):
    """What `POST /detokenize` takes."""

    model: str | None = None
    tokens: Ids


class EmbeddingsRequest(RequestModel):
    """What `POST /v1/embeddings` takes."""

    model: str | None = None
    input: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=_INPUTS, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], FAIL_FAST]
    )
    encoding_format: str | None = None
    dimensions: int | None = None
    user: str | None = None

    @property
    def parts(self) -> "list[str] | list[Ids]":
        """The inputs as a list: texts, or lists of ids."""
        if isinstance(self.input, str):
            return [self.input]
        ids: Any = self.input
        return [ids] if ids and isinstance(ids[0], int) else ids


class ModelEndpoint:
    """The routes of requests about the model."""

    def __init__(
        self, agent: Agent, engines: EnginePool, limits: LimitsConfig, tracing: "Tracing | None" = None
    ) -> None:
        """`tracing`: makes a span for each request for embeddings."""
        self._tracing = tracing
        self._agent = agent
        self._engines = engines
        self._limits = limits
        self._started = int(time.time())  # noqa: TID251 - the API wants a date

    def routes(self) -> list[Route]:
        """The routes that `app/process.py` mounts."""
        return [
            Route("/v1/models", self._models, methods=["GET"]),
            Route("/v1/models/{model:path}", self._model, methods=["GET"]),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/detokenize", self._detokenize, methods=["POST"]),
            Route("/v1/embeddings", self._embeddings, methods=["POST"]),
        ]

    async def _models(self, _request: Request) -> Response:
        try:
            listed = [self._described(ready) for ready in self._engines.models()]
            return openai_form().whole({"object": "list", "data": listed})
        except GatewayError as error:
            return openai_form().refused(error)

    async def _model(self, request: Request) -> Response:
        form = openai_form()
        asked = request.path_params["model"]
        try:
            ready = self._engines.named(asked)
        except GatewayError as error:
            return form.refused(error)
        return form.whole(self._described(ready))

    def _described(self, ready: ReadyEngine) -> Chunk:
        codec = {
            "map_id": ready.token_map.map_id,
            "context": ready.facts.context,
            "tool_format": ready.tool_format.format.name,
        }
        model = {"id": ready.facts.model, "object": "model", "created": self._started, "owned_by": "llama.cpp"}
        return {**model, "codec": codec}

    async def _tokenize(self, request: Request) -> Response:
        form = openai_form()
        try:
            must_be_json(request)
            body = await read_body(request, self._limits.body_bytes)
            asked = TokenizeRequest.of_body(body)
            ready = self._engines.ready(asked.model)
            if (asked.prompt is None) == (asked.messages is None):
                raise RequestInvalid("expected either 'prompt' or 'messages', not both", param="prompt")
            if asked.prompt is None:
                ids = await self._prompt(request, body)
            else:
                check_length(len(asked.prompt), ready.facts.context, "prompt")
                before = ready.facts.bos if asked.add_special_tokens else ()
                ids = [*before, *ready.token_map.encode(asked.prompt, specials=asked.add_special_tokens)]
        except GatewayError as error:
            return form.refused(error)
        strings = [ready.token_map.decode([each]) for each in ids] if asked.return_token_strs else None
        counted: Chunk = {"count": len(ids), "max_model_len": ready.facts.context}
        return form.whole({**counted, "tokens": ids, "token_strs": strings})

    async def _prompt(self, request: Request, body: bytes) -> list[int]:
        """The prompt ids that the engine would get for a chat."""
        chat, messages = ChatRequest.checked(body)
        return (await open_chat(self._agent, principal_of(request.scope), chat, messages)).ids

    async def _detokenize(self, request: Request) -> Response:
        form = openai_form()
        try:
            must_be_json(request)
            asked = DetokenizeRequest.of_body(await read_body(request, self._limits.body_bytes))
            ready = self._engines.ready(asked.model)
            _must_have(ready, asked.tokens, "tokens")
        except GatewayError as error:
            return form.refused(error)
        return form.whole({"prompt": ready.token_map.decode(asked.tokens)})

    async def _embeddings(self, request: Request) -> Response:
        form = openai_form()
        try:
            must_be_json(request)
            asked = EmbeddingsRequest.of_body(await read_body(request, self._limits.body_bytes))
            ready = self._engines.ready(asked.model)
            inputs = await _input(ready, asked)
            with plain_span(self._tracing, "embeddings", ready, asked.model, {}) as span:
                answer = await self._engines.open(
                    *(ready, key_of(principal_of(request.scope).name)),
                    lambda each: each.engine.embed(inputs, asked.encoding_format, asked.dimensions),
                )
                span.told["gen_ai.usage.input_tokens"] = sum(map(len, inputs))
        except EngineRefused as error:
            if error.status != 501:
                return form.refused(error)
            words = f"the engine does not serve embeddings ({error.message}): start it with an embedding model"
            return form.whole(error_body(words, "invalid_request_error", "not_supported", None), 501)
        except GatewayError as error:
            return form.refused(error)
        return form.whole({**answer, "model": ready.facts.model})


async def _input(ready: ReadyEngine, asked: EmbeddingsRequest) -> list[Ids]:
    """The inputs as ids, since the engine would read control tokens in texts. Other tasks may run before each input."""
    found: list[Ids] = []
    for part in asked.parts:
        check_length(len(part), ready.facts.context, "input")
        await checkpoint()
        ids = [*ready.facts.bos, *ready.token_map.encode(part)] if isinstance(part, str) else part
        _must_have(ready, ids, "input")
        found.append(ids)
    return found


def _must_have(ready: ReadyEngine, ids: Ids, param: str) -> None:
    unknown = next((each for each in ids if not ready.token_map.has_id(each)), None)
    if unknown is not None:
        raise RequestInvalid(f"{param}: the map {ready.token_map.map_id!r} has no id {unknown}", param=param)
    if not ids:
        raise RequestInvalid(f"{param}: expected a text or ids; got nothing", param=param)
