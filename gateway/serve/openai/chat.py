"""The OpenAI endpoint: `POST /v1/chat/completions`.

Turns requests into turns of the agent. `serve/generation/answers.py` sends the answers as JSON, `serve/codec` as
frames. Plain completions are in `completions.py`, requests about the model itself in `model_endpoint.py`.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Agent, AnswerOptions, Conversation
from gateway.agent.events import Emit
from gateway.config import LimitsConfig
from gateway.engine.control_tokens import spelled
from gateway.engine.interface import Message
from gateway.errors import EngineError, GatewayError
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.codec.frames import FrameResponder
from gateway.serve.generation.answers import Answering, ApiForm, StreamedAnswer, WholeAnswer
from gateway.serve.http.request_parts import must_be_json, principal_of, read_body
from gateway.serve.openai.chat_reply import ChatReply, ChoicesReply, event_bytes, openai_form
from gateway.serve.openai.chat_request import ChatRequest


class ChatEndpoint:
    """The route of chat completions, over one agent."""

    def __init__(self, agent: Agent, limits: LimitsConfig, metrics: Metrics, frames: FrameResponder) -> None:
        self._agent = agent
        self._limits = limits
        self._metrics = metrics
        self._frames = frames

    def routes(self) -> list[Route]:
        """The routes that `app/process.py` mounts."""
        return [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]

    async def _chat(self, request: Request) -> Response:
        form = openai_form()
        try:
            must_be_json(request)
            chat, messages = ChatRequest.checked(await read_body(request, self._limits.body_bytes))
            principal = principal_of(request.scope)
            conversations = [await open_chat(self._agent, principal, chat, messages) for _ in range(chat.n)]
            options = chat.options(conversations[0].ready.token_map)
        except GatewayError as error:
            self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
            return form.refused(error)
        return self._answered(request, chat, conversations, options, form)

    def _answered(
        self,
        request: Request,
        chat: ChatRequest,
        conversations: Sequence[Conversation],
        options: AnswerOptions,
        form: ApiForm,
    ) -> Response:
        conversation = conversations[0]
        prompt = tuple(conversation.ids)

        async def make(emit: Emit) -> None:
            for number, each in enumerate(conversations):
                await self._agent.answer(each, _drawn_anew(options, number), emit)

        answering = Answering(make, self._metrics.chat_request)
        created = int(time.time())  # noqa: TID251
        if chat.stream_format != "json":
            token_map = conversation.ready.token_map
            # Results of tools add ids: the stream has a known bound only where there are no tools.
            most = None if conversation.asked.tools else chat.most
            plain = ChatReply(
                conversation.ready.facts.model, created, usage_chunk=False, answer_id=conversation.answer_id
            )
            return self._frames.respond(
                *(request, chat, answering, token_map, prompt),
                expected_ids=most,
                name_calls=False,
                json_event=event_bytes(plain),
            )
        answer = StreamedAnswer if chat.stream else WholeAnswer
        return answer(answering, lambda: _reply(chat, conversations, prompt, created), form)


def _reply(
    chat: ChatRequest, conversations: Sequence[Conversation], prompt: Sequence[int], created: int
) -> ChatReply | ChoicesReply:
    ready = conversations[0].ready
    unused = chat.without_effect(ready.template.options)
    replies = [
        ChatReply(
            ready.facts.model,
            created,
            usage_chunk=chat.usage_chunk,
            prompt_ids=prompt if chat.return_token_ids else None,
            ignored=unused,
            answer_id=conversations[0].answer_id,
            spell=partial(spelled, ready.token_map) if chat.logprobs else None,
            shapes=chat.call_shapes(),
        )
        for _ in conversations
    ]
    if chat.n == 1:
        return replies[0]
    return ChoicesReply(replies, len(prompt), usage_chunk=chat.usage_chunk)


async def open_chat(agent: Agent, principal: Principal, chat: ChatRequest, messages: Sequence[Message]) -> Conversation:
    """Open the conversation of a request. Raises `GatewayError`."""
    return await agent.open(
        messages,
        choice=chat.choice(),
        client_tools=chat.client_tools(),
        deferral=chat.read_tools.deferral,
        gateway_tools=chat.gateway_scope(),
        principal=principal,
        options=chat.template_options,
        continues=chat.continue_final_message,
        model=chat.model,
    )


def _drawn_anew(options: AnswerOptions, number: int) -> AnswerOptions:
    """Add the answer's number to the seed, if the request has one: with one seed all answers would be the same."""
    seed = options.sampling.seed
    if seed is None or not number:
        return options
    return replace(options, sampling=replace(options.sampling, seed=(seed + number) % 2**32))
