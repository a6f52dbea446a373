"""The OpenAI endpoint: `POST /v1/chat/completions`.

Turns requests into turns of the agent; how an answer is shown is `serve/generation/answers.py`'s, and as frames the
Codec endpoint's. Plain completions are `completions.py`'s, what can be asked of the model besides is `model.py`'s.
"""

import time

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Agent, AnswerOptions, Conversation
from gateway.agent.events import Emit, Finished
from gateway.config import LimitsConfig
from gateway.errors import EngineError, GatewayError
from gateway.observe.metrics import Metrics
from gateway.serve.auth.identity import principal_of
from gateway.serve.codec.responder import FrameResponder
from gateway.serve.generation.answers import Answering, ApiForm, StreamedAnswer, WholeAnswer
from gateway.serve.http.body import must_be_json, read_body
from gateway.serve.openai.chat_reply import ChatReply
from gateway.serve.openai.chat_request import ChatRequest
from gateway.serve.openai.form import event_bytes, openai_form


class ChatEndpoint:
    """The route of chats over one agent."""

    def __init__(self, agent: Agent, limits: LimitsConfig, metrics: Metrics, frames: FrameResponder) -> None:
        self._agent = agent
        self._limits = limits
        self._metrics = metrics
        self._frames = frames

    def routes(self) -> list[Route]:
        """What `app.py` mounts."""
        return [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]

    async def _chat(self, request: Request) -> Response:
        form = openai_form()
        try:
            must_be_json(request)
            chat, messages = ChatRequest.checked(await read_body(request, self._limits.body_bytes))
            conversation = await self._agent.open(
                messages,
                choice=chat.choice(),
                client_tools=chat.client_tools(),
                gateway_tools=chat.gateway_scope(),
                principal=principal_of(request.scope),
            )
            options = chat.options(conversation.ready.token_map)
        except GatewayError as error:
            self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
            return form.refused(error)
        return self._answered(request, chat, conversation, options, form)

    def _answered(
        self, request: Request, chat: ChatRequest, conversation: Conversation, options: AnswerOptions, form: ApiForm
    ) -> Response:
        prompt = tuple(conversation.ids)

        async def make(emit: Emit) -> Finished:
            return await self._agent.answer(conversation, options, emit)

        answering = Answering(make, self._metrics.chat_request)
        created = int(time.time())  # noqa: TID251
        if chat.stream_format != "json":
            token_map = conversation.ready.token_map
            # Results of tools come on top: how long the stream may be is known only where there are none.
            most = None if conversation.tools else chat.most
            plain = ChatReply(
                conversation.ready.facts.model, created, usage_chunk=False, answer_id=conversation.answer_id
            )
            return self._frames.respond(
                *(request, chat, answering, token_map, prompt),
                expected_ids=most,
                name_calls=False,
                json_event=event_bytes(plain),
            )
        ids = prompt if chat.return_token_ids else None
        reply = ChatReply(
            conversation.ready.facts.model,
            created,
            usage_chunk=chat.usage_chunk,
            prompt_ids=ids,
            ignored=chat.ignored,
            answer_id=conversation.answer_id,
        )
        return StreamedAnswer(answering, reply, form) if chat.stream else WholeAnswer(answering, reply, form)
