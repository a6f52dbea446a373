"""`POST /v1/responses`, and its stored responses: GET, DELETE and their input items.

`exchange.py` reads one request and answers it.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Agent
from gateway.agent.events import AgentEvent
from gateway.config import LimitsConfig
from gateway.errors import EngineError, GatewayError, NotAnswered, ReplicaBusy, RequestInvalid
from gateway.escape import escape_text
from gateway.observe.metrics import Metrics
from gateway.replicas import ALONE, Replica, Replicas
from gateway.serve.generation.answers import Answering, StreamedAnswer, WholeAnswer
from gateway.serve.http.error_answers import ReplicaAnswer
from gateway.serve.http.request_parts import must_be_json, principal_of, read_body
from gateway.serve.responses.exchange import ResponseExchange, ResponsesState, Seal
from gateway.serve.responses.input_history import shown
from gateway.serve.responses.items import ApprovedCalls, name_in, named_by
from gateway.serve.responses.response_request import RESPONSES, NotStored, ResponsesRequest, broken_off
from gateway.serve.responses.response_store import Responses, ResponseStore, StoredResponse, page_of
from gateway.shared import Shared

Tell = Callable[[StoredResponse], Awaitable[dict[str, Any]]]

_COMPACT = "/v1/responses/compact"
_SHOWN = 100
_CLIENT_LEFT = 499
"""Status of an answer whose client has disconnected, so that nobody reads it."""


class ResponsesEndpoint:
    """The routes under /v1/responses, over one agent."""

    def __init__(
        self,
        agent: Agent,
        limits: LimitsConfig,
        metrics: Metrics,
        replicas: Replicas = ALONE,
        shared: Shared | None = None,
    ) -> None:
        """`replicas` have the responses that are not stored here; `shared` has those of replicas that are gone."""
        self._agent = agent
        self._limits = limits
        self._metrics = metrics
        store = ResponseStore(limits.responses_bytes, limits.responses_ttl, limits.principal_share, time.monotonic)
        responses = Responses(store, shared, limits)
        self._state = ResponsesState(responses, Seal(replicas.shared_keys("reasoning")), ApprovedCalls(), replicas)

    def routes(self) -> list[Route]:
        """The routes that `app/process.py` mounts."""
        one = "/v1/responses/{response_id}"
        return [
            Route("/v1/responses", self._create, methods=["POST"]),
            Route(_COMPACT, self._create, methods=["POST"]),
            Route(one, self._retrieve, methods=["GET"]),
            Route(one, self._delete, methods=["DELETE"]),
            Route(f"{one}/input_items", self._input_items, methods=["GET"]),
        ]

    async def _create(self, request: Request) -> Response:
        try:
            must_be_json(request)
            body = await read_body(request, self._limits.body_bytes)
            asked = ResponsesRequest.checked(body)
        except GatewayError as error:
            return self._refused(error)
        named = named_by(asked.previous_response_id, asked.input)
        if named.routing_id is None or (owner := self._owner(named.routing_id, request)) is None:
            return await self._answer(asked, named.items, request)
        return self._elsewhere(owner, body, lambda: self._answer(asked, named.items, request))

    async def _answer(self, asked: ResponsesRequest, referred: Sequence[str], request: Request) -> Response:
        try:
            principal = principal_of(request.scope)
            stored = await self._state.store.having(principal.name, asked.previous_response_id, referred)
            only_summary = request.url.path == _COMPACT
            exchange = ResponseExchange(
                *(self._agent, asked, principal, self._state, stored, self._limits.body_bytes),
                only_summary=only_summary,
            )
            if not await _opened(exchange, request):
                self._metrics.chat_request("cancelled")
                return Response(status_code=_CLIENT_LEFT)
        except GatewayError as error:
            return self._refused(error)
        answering = Answering(exchange.make, self._metrics.chat_request)
        if only_summary:
            return WholeAnswer(answering, exchange.compacted_reply, RESPONSES)
        answer = StreamedAnswer if asked.stream else WholeAnswer
        return answer(answering, exchange.reply, RESPONSES)

    def _refused(self, error: GatewayError) -> Response:
        self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
        return RESPONSES.refused(error)

    def _owner(self, an_id: str, request: Request) -> Replica | None:
        principal = principal_of(request.scope)
        return self._state.replicas.owner("response", name_in(an_id), principal.name, request.scope)

    def _elsewhere(self, owner: Replica, body: bytes | None, here: Callable[[], Awaitable[Response]]) -> Response:
        """Send the request on to the replica that owns what it names; answer with `here` where that replica is gone."""

        async def unanswered(error: NotAnswered) -> Response:
            return RESPONSES.refused(error) if isinstance(error, ReplicaBusy) else await here()

        return ReplicaAnswer(self._state.replicas, owner, body, unanswered=unanswered, broken=broken_off)

    async def _retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream", "false") != "false":
            words = "stream: a stored response can't be streamed: leave stream out to get it whole"
            return RESPONSES.refused(RequestInvalid(words, param="stream"))
        return await self._of_stored(request, _show)

    async def _input_items(self, request: Request) -> Response:
        async def page(stored: StoredResponse) -> dict[str, Any]:
            return page_of(stored, request.query_params)

        return await self._of_stored(request, page)

    async def _delete(self, request: Request) -> Response:
        async def delete(stored: StoredResponse) -> dict[str, Any]:
            await self._state.store.delete(stored.owner, stored.id)
            return {"id": stored.id, "object": "response", "deleted": True}

        return await self._of_stored(request, delete)

    async def _of_stored(self, request: Request, tell: Tell) -> Response:
        response_id: str = request.path_params["response_id"]

        async def told() -> Response:
            return await self._told(request, response_id, tell)

        owner = self._owner(response_id, request)
        return await told() if owner is None else self._elsewhere(owner, None, told)

    async def _told(self, request: Request, response_id: str, tell: Tell) -> Response:
        stored = await self._state.store.get(principal_of(request.scope).name, response_id)
        if stored is None:
            words = f"there is no stored response {escape_text(response_id, _SHOWN)!r}: it may have expired"
            return RESPONSES.refused(NotStored(words, "response_not_found"))
        try:
            return RESPONSES.whole(await tell(stored))
        except RequestInvalid as error:
            return RESPONSES.refused(error)


async def _opened(exchange: ResponseExchange, request: Request) -> bool:
    """Open the exchange. False: the client disconnected, which cancels approved calls. Raises `GatewayError`."""
    if not exchange.approves:
        await exchange.open()
        return True
    opening = Answering(lambda _: exchange.open(), lambda _: None)
    failure = await opening.run(request.scope, request.receive, _drop_event)
    if failure is not None:
        raise failure
    return not opening.client_left


async def _show(stored: StoredResponse) -> dict[str, Any]:
    return shown(stored)


async def _drop_event(_event: AgentEvent) -> None:
    """Drop an event: of approved calls, only the results are shown."""
