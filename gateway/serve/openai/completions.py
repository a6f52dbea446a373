"""`POST /v1/completions`: continues a prompt of text or ids; the answer is JSON, an event stream or frames.

`/v1/completions/codec` is the same with its request in msgpack or protobuf. Turns requests into runs of the completer.
`serve/generation/answers.py` sends the answers as JSON, `serve/codec` as frames.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Completer, Prompt
from gateway.agent.events import Emit, Finished
from gateway.config import LimitsConfig
from gateway.engine.pool.pool import EnginePool
from gateway.errors import EngineError, GatewayError
from gateway.observe.metrics import Metrics
from gateway.serve.auth.identity import principal_of
from gateway.serve.codec.responder import FrameResponder
from gateway.serve.generation.answers import Answering, StreamedAnswer, WholeAnswer
from gateway.serve.generation.form import ApiForm
from gateway.serve.http.body import must_be_json, read_body
from gateway.serve.openai.codec_request import read_codec_request
from gateway.serve.openai.completion_reply import CompletionReply
from gateway.serve.openai.completion_request import CompletionRequest
from gateway.serve.openai.form import event_bytes, openai_form

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


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
