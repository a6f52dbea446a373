"""`POST /v1/responses`, and the stored responses behind it: GET, DELETE and their input items.

Turns requests into turns of the agent, and says which calls may be made that a client has approved; how an answer is
told is `reply.py`'s.
"""

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.agent import Agent, AnswerOptions, Conversation, ToolChoice
from gateway.agent.events import Emit, Finished
from gateway.config import LimitsConfig
from gateway.errors import EngineError, GatewayError, RequestInvalid
from gateway.observe.escape import escape_text
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.serve.auth.identity import principal_of
from gateway.serve.generation.answers import Answering, StreamedAnswer, WholeAnswer
from gateway.serve.http.body import must_be_json, read_body
from gateway.serve.responses.choice import read_choice
from gateway.serve.responses.form import RESPONSES, NotStored
from gateway.serve.responses.history import Gathered, gather, kept, shown
from gateway.serve.responses.listing import page_of
from gateway.serve.responses.reply import Made, ReplyOptions, ResponseReply
from gateway.serve.responses.request import ResponsesRequest
from gateway.serve.responses.seal import Seal
from gateway.serve.responses.store import ResponseStore, StoredResponse
from gateway.serve.responses.tools import RequestTools, read_tools
from gateway.serve.responses.transcript import Asked, Reader, Transcript
from gateway.toolcalls import CallClosed

_SHOWN = 100


class ResponsesEndpoint:
    """Routes under /v1/responses over one agent."""

    def __init__(self, agent: Agent, limits: LimitsConfig, metrics: Metrics) -> None:
        self._agent = agent
        self._limits = limits
        self._metrics = metrics
        self._seal = Seal()
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
            exchange = _Exchange(self._agent, asked, principal_of(request.scope), self._store, self._seal, most)
            await exchange.open()
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


class _Exchange:
    """One request and its answer."""

    conversation: Conversation

    def __init__(
        self,
        agent: Agent,
        asked: ResponsesRequest,
        principal: Principal,
        store: ResponseStore,
        seal: Seal,
        most: int,
    ) -> None:
        """`most`: bytes of the items that it refers to. Raises `RequestInvalid`."""
        self._agent = agent
        self._asked = asked
        self._principal = principal
        self._store = store
        self._seal = seal
        offers = agent.offers
        servers = partial(offers.servers, principal)
        self._tools: RequestTools = read_tools(asked.tools, offers.entries(principal), servers)
        if asked.gateway_tools == "none" and self._tools.servers is not None:
            raise RequestInvalid(
                "gateway_tools is 'none', but tools name servers of the gateway", param="gateway_tools"
            )
        self._choice: ToolChoice = read_choice(asked.tool_choice, self._tools)
        self._items: Gathered = gather(asked, store, principal.name, most)
        self._read: Transcript = Reader(self._tools, partial(seal.open, principal.name)).read(self._items.placed)
        self._made: list[Made] = []

    async def open(self) -> None:
        """Make the calls that were approved, and begin the conversation. Raises `GatewayError`."""
        asked, messages = self._asked, self._read.messages
        if self._read.approved:
            self._made = await self._make_approved(self._read.approved)
        if asked.instructions:
            messages = [{"role": "system", "content": asked.instructions}, *messages]
        self.conversation = await self._agent.open(
            messages,
            choice=self._choice,
            client_tools=self._tools.specs,
            gateway_tools=self._tools.scope(asked.gateway_tools),
            principal=self._principal,
        )

    async def _make_approved(self, approved: list[Asked]) -> list[Made]:
        calls = [CallClosed(n, each.call_id, each.name, each.item["arguments"], ()) for n, each in enumerate(approved)]
        made: list[Made] = []
        for each, (text, finished) in zip(approved, await self._agent.call(calls, self._principal), strict=True):
            if each.place is not None:
                self._read.messages[each.place]["content"] = text
            made.append(Made(each.item, text, finished.is_error))
        return made

    async def make(self, emit: Emit) -> Finished:
        """Make the answer."""
        asked = self._asked
        options = AnswerOptions(
            choice=self._choice,
            max_tokens=asked.max_output_tokens,
            sampling=asked.sampling,
            parallel=asked.parallel_tool_calls,
            form=asked.form,
            show_calls=False,
            tell_calls=True,
            max_calls=asked.max_tool_calls,
        )
        return await self._agent.answer(self.conversation, options, emit)

    def reply(self) -> ResponseReply:
        """How the answer is told."""
        asked, items = self._asked, self._items
        owner = self._principal.name

        def keep(response: dict[str, Any]) -> None:
            self._store.put(kept(response, asked.previous_response_id, items, owner))

        options = ReplyOptions(
            now=_now,
            summarized=asked.summarized,
            seal=partial(self._seal.close, owner) if asked.sealed else None,
            keep=keep if asked.store else _nothing,
        )
        ignored = dict.fromkeys((*asked.without_effect, *self._tools.ignored, *items.ignored, *self._read.ignored))
        lists = [label for label in self._tools.servers or () if label not in self._read.listed]
        return ResponseReply(
            self._head(), self._tools, options, ignored=list(ignored)[:64], lists=lists, made=self._made
        )

    def _head(self) -> dict[str, Any]:
        """The response without what is only known at its end."""
        asked = self._asked
        summary = asked.reasoning.summary or asked.reasoning.generate_summary
        nothing = dict.fromkeys(("completed_at", "error", "incomplete_details", "usage"))
        return {
            "id": f"resp_{secrets.token_hex(16)}",
            "object": "response",
            "created_at": _now(),
            "status": "in_progress",
            "model": self.conversation.ready.facts.model,
            **nothing,
            "background": False,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "max_tool_calls": asked.max_tool_calls,
            "metadata": asked.metadata or {},
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": asked.previous_response_id,
            "reasoning": {"effort": None, "summary": summary},
            "service_tier": "default",
            "store": asked.store,
            "temperature": asked.temperature,
            "text": asked.shown_text,
            "tool_choice": asked.tool_choice,
            "tools": self._tools.shown,
            "top_p": asked.top_p,
            "truncation": "disabled",
        }


def _now() -> int:
    return int(time.time())  # noqa: TID251 - the API wants a date


def _nothing(_response: dict[str, Any]) -> None:
    """Not stored."""
