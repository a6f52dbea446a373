"""`POST /v1/responses`, and the stored responses behind it: GET, DELETE and their input items.

What one request is and how it is answered is `exchange.py`'s.
"""

import time
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Agent
from gateway.agent.events import AgentEvent
from gateway.config import LimitsConfig
from gateway.errors import EngineError, GatewayError, RequestInvalid
from gateway.observe.escape import escape_text
from gateway.observe.metrics import Metrics
from gateway.serve.auth.identity import principal_of
from gateway.serve.generation.answers import Answering, StreamedAnswer, WholeAnswer
from gateway.serve.http.body import must_be_json, read_body
from gateway.serve.responses.approvals import Approvals
from gateway.serve.responses.exchange import Exchange
from gateway.serve.responses.form import RESPONSES, NotStored
from gateway.serve.responses.history import shown
from gateway.serve.responses.listing import page_of
from gateway.serve.responses.request import ResponsesRequest
from gateway.serve.responses.seal import Seal
from gateway.serve.responses.store import ResponseStore, StoredResponse

_SHOWN = 100
_CLIENT_LEFT = 499
"""Of an answer that nobody reads."""


class ResponsesEndpoint:
    """Routes under /v1/responses over one agent."""

    def __init__(self, agent: Agent, limits: LimitsConfig, metrics: Metrics) -> None:
        self._agent = agent
        self._limits = limits
        self._metrics = metrics
        self._seal = Seal()
        self._approvals = Approvals()
        self._store = ResponseStore(
            limits.responses_bytes, limits.responses_ttl, limits.principal_share, time.monotonic
        )

    def routes(self) -> list[Route]:
        """What `app.py` mounts."""
        one = "/v1/responses/{response_id}"
        return [
            Route("/v1/responses", self._create, methods=["POST"]),
            Route(one, self._retrieve, methods=["GET"]),
            Route(one, self._delete, methods=["DELETE"]),
            Route(f"{one}/input_items", self._input_items, methods=["GET"]),
        ]

    async def _create(self, request: Request) -> Response:
        try:
            must_be_json(request)
            most = self._limits.body_bytes
            asked = ResponsesRequest.checked(await read_body(request, most))
            kept = (self._store, self._seal, self._approvals)
            exchange = Exchange(self._agent, asked, principal_of(request.scope), *kept, most)
            if not await _is_wanted(exchange, request):
                self._metrics.chat_request("cancelled")
                return Response(status_code=_CLIENT_LEFT)
        except GatewayError as error:
            self._metrics.chat_request("engine_error" if isinstance(error, EngineError) else "client_error")
            return RESPONSES.refused(error)
        answering = Answering(exchange.make, self._metrics.chat_request)
        answer = StreamedAnswer if asked.stream else WholeAnswer
        return answer(answering, exchange.reply(), RESPONSES)

    async def _retrieve(self, request: Request) -> Response:
        if request.query_params.get("stream", "false") != "false":
            words = "stream: a response is streamed while it is made, and told whole afterwards"
            return RESPONSES.refused(RequestInvalid(words, param="stream"))
        return self._of_stored(request, shown)

    async def _input_items(self, request: Request) -> Response:
        return self._of_stored(request, lambda stored: page_of(stored, request.query_params))

    async def _delete(self, request: Request) -> Response:
        def delete(stored: StoredResponse) -> dict[str, Any]:
            self._store.delete(stored.owner, stored.id)
            return {"id": stored.id, "object": "response", "deleted": True}

        return self._of_stored(request, delete)

    def _of_stored(self, request: Request, tell: Callable[[StoredResponse], dict[str, Any]]) -> Response:
        response_id: str = request.path_params["response_id"]
        stored = self._store.get(principal_of(request.scope).name, response_id)
        if stored is None:
            words = f"the response {escape_text(response_id, _SHOWN)!r} is not stored (any more)"
            return RESPONSES.refused(NotStored(words, "response_not_found"))
        try:
            return RESPONSES.whole(tell(stored))
        except RequestInvalid as error:
            return RESPONSES.refused(error)


async def _is_wanted(exchange: Exchange, request: Request) -> bool:
    """Begin; a client that leaves takes the calls with it that it has approved: False. Raises `GatewayError`."""
    if not exchange.approves:
        await exchange.open()
        return True
    opening = Answering(lambda _: exchange.open(), lambda _: None)
    failure = await opening.run(request.scope, request.receive, _unheard)
    if failure is not None:
        raise failure
    return not opening.client_left


async def _unheard(_event: AgentEvent) -> None:
    """Of calls that were approved, their results are all that is told."""
