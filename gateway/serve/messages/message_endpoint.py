"""The endpoint of Anthropic's API: `POST /v1/messages`, `/v1/messages/count_tokens` and its `GET /v1/models`.

Turns requests into turns of the agent; `serve/generation/answers.py` sends the answers. The value of
`anthropic-version` is not checked: only one version is served, and a client that names none, or a later one, is better
served by it than by an error.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from gateway.agent import Agent, Conversation, ToolChoice
from gateway.agent.compaction import CompactableAnswer
from gateway.agent.events import Emit, Finished
from gateway.config import LimitsConfig
from gateway.context.history.shortening import ClearedHistory
from gateway.context.memory import ContextChange
from gateway.engine.interface import Message
from gateway.engine.pool.pool import EnginePool
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import ContextExceeded, EngineError, GatewayError
from gateway.observe.metrics import Metrics
from gateway.serve.generation.answers import Answering, ApiForm, Chunk, StreamedAnswer, WholeAnswer
from gateway.serve.http.error_answers import speaks_anthropic
from gateway.serve.http.request_parts import must_be_json, new_request_id, principal_of, read_body
from gateway.serve.messages.message_reply import MessageOptions, MessagesReply, Thinking, form_of
from gateway.serve.messages.message_request import MessagesRequest, PromptFields

_MCP = "mcp-client"
_EAGER = "fine-grained-tool-streaming"
"""Features that the header `anthropic-beta` asks for, without the date that ends their names."""


class MessagesEndpoint:
    """The routes of Anthropic's API, over one agent."""

    def __init__(self, agent: Agent, engines: EnginePool, limits: LimitsConfig, metrics: Metrics) -> None:
        self._agent = agent
        self._engines = engines
        self._limits = limits
        self._metrics = metrics
        self._started = datetime.now(UTC).replace(microsecond=0)

    def routes(self) -> list[Route]:
        """The routes that `app/process.py` mounts, before those of other APIs."""
        return [
            Route("/v1/messages", self._messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
            _VersionedRoute("/v1/models", self._models, methods=["GET"]),
            _VersionedRoute("/v1/models/{model:path}", self._model, methods=["GET"]),
        ]

    async def _messages(self, request: Request) -> Response:
        named = new_request_id()
        form = form_of(named)
        try:
            must_be_json(request)
            asked = MessagesRequest.checked(await read_body(request, self._limits.body_bytes))
            answer = CompactableAnswer(
                *(self._agent, partial(self._open, request, asked), asked.edited.messages, asked.choice),
                asked=asked.compacts,
            )
            await answer.open()
        except GatewayError as error:
            self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
            return form.refused(error)
        return self._answered(asked, answer, form, _reply_options(request, asked, answer.conversation), named)

    async def _open(
        self, request: Request, asked: PromptFields, messages: Sequence[Message], choice: ToolChoice
    ) -> Conversation:
        principal, edited = principal_of(request.scope), asked.edited
        asked.sorted_tools.check_servers(self._agent.offers.servers(principal))
        return await self._agent.open(
            messages,
            choice=choice,
            client_tools=asked.sorted_tools.client,
            deferral=asked.sorted_tools.deferral,
            gateway_tools=asked.gateway_scope(),
            principal=principal,
            options=asked.template_options,
            continues=asked.continues and messages is edited.messages,
            model=asked.model,
            changes=[ContextChange("cleared", edited.tokens, edited.uses)] if edited.uses else (),
        )

    def _answered(
        self, asked: MessagesRequest, compactable: CompactableAnswer, form: ApiForm, options: MessageOptions, named: str
    ) -> Response:
        async def make(emit: Emit) -> Finished:
            return await compactable.answer(asked.options(), emit)

        new_reply = partial(
            MessagesReply,
            compactable.conversation.ready.facts.model,
            len(compactable.conversation.ids),
            options,
            request_id=named,
            server_of=self._agent.offers.server_of,
            room=lambda: compactable.conversation.room,
        )
        answering = Answering(make, self._metrics.chat_request)
        answer = StreamedAnswer if asked.stream else WholeAnswer
        return answer(answering, new_reply, form)

    async def _count(self, request: Request) -> Response:
        """Count the ids that the engine would get as a prompt."""
        form, managed = form_of(new_request_id()), dict[str, int]()
        try:
            must_be_json(request)
            asked = PromptFields.of_body(await read_body(request, self._limits.body_bytes))
            counted = await self._size(request, asked, asked.edited.messages)
            if asked.edited.uses:
                managed["original_input_tokens"] = await self._size(request, asked, asked.conversation[0])
        except GatewayError as error:
            return form.refused(error)
        return form.whole({"input_tokens": counted, **({"context_management": managed} if managed else {})})

    async def _size(self, request: Request, asked: PromptFields, messages: Sequence[Message]) -> int:
        try:
            return len((await self._open(request, asked, messages, asked.choice)).ids)
        except ContextExceeded as error:
            return error.tokens

    async def _models(self, _request: Request) -> Response:
        form = form_of(new_request_id())
        try:
            models = [self._described(ready) for ready in self._engines.models()]
        except GatewayError as error:
            return form.refused(error)
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]}
        return form.whole({"data": models, "has_more": False, **ends})

    async def _model(self, request: Request) -> Response:
        """Describe a model. Where there is only one, any name means it."""
        form = form_of(new_request_id())
        try:
            return form.whole(self._described(self._engines.ready(request.path_params["model"])))
        except GatewayError as error:
            return form.refused(error)

    def _described(self, ready: ReadyEngine) -> Chunk:
        facts = ready.facts
        return {
            "type": "model",
            "id": facts.model,
            "display_name": facts.model,
            "created_at": self._started.isoformat().replace("+00:00", "Z"),
            "lifecycle": "active",
            "max_input_tokens": facts.context,
        }


class _VersionedRoute(Route):
    """A path that OpenAI's API also has: it belongs to Anthropic's for requests that send `anthropic-version`."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        return super().matches(scope) if speaks_anthropic(scope) else (Match.NONE, {})


def _reply_options(request: Request, asked: MessagesRequest, conversation: Conversation) -> MessageOptions:
    betas = ",".join(request.headers.getlist("anthropic-beta"))
    eager = asked.sorted_tools.eager
    every = _EAGER in betas
    return MessageOptions(
        thinking=_thinking(asked),
        ran=_MCP in betas,
        search=None if asked.sorted_tools.search is None else asked.sorted_tools.search.spec.name,
        marked=asked.marks_cache,
        eager=lambda name: every or name in eager,
        ignored=asked.without_effect(conversation.ready.template.options),
        edits=_applied(asked.edited) if asked.edits.asked else None,
    )


def _applied(edited: ClearedHistory) -> list[Chunk]:
    if not edited.uses:
        return []
    figures = {"cleared_tool_uses": edited.uses, "cleared_input_tokens": edited.tokens}
    return [{"type": "clear_tool_uses_20250919", **figures}]


def _thinking(asked: MessagesRequest) -> Thinking:
    if not asked.thinks:
        return "hidden"
    return "omitted" if asked.thinking and asked.thinking.display == "omitted" else "shown"
