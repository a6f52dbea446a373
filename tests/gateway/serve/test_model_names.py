"""`model` of a request, where there is one model and where there are several: in every API alike."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from gateway.agent import Agent, CallRunner
from gateway.config import GatewayConfig
from gateway.engine.interface import EngineFacts
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineUnavailable
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.serve.codec.frame_negotiation import WireOffer
from gateway.serve.codec.frames import FrameResponder
from gateway.serve.messages.message_endpoint import MessagesEndpoint
from gateway.serve.openai.chat import ChatEndpoint
from gateway.serve.openai.completions import CompletionsEndpoint
from gateway.serve.openai.model_endpoint import ModelEndpoint
from gateway.serve.responses.response_endpoint import ResponsesEndpoint
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map
from tests.cases import each_of
from tests.gateway.serve.openai.test_strange_requests import HERMES, Engine

pytestmark = pytest.mark.anyio

TINY = tiny_map()
SAID = [{"role": "user", "content": "Hello"}]
REQUESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": SAID}),
    "completions": ("/v1/completions", {"prompt": "Hello"}),
    "responses": ("/v1/responses", {"input": "Hello"}),
    "messages": ("/v1/messages", {"messages": SAID, "max_tokens": 9}),
}
COUNTS: dict[str, tuple[str, dict[str, Any]]] = {
    "tokenize": ("/tokenize", {"prompt": "Hello"}),
    "tokenize a chat": ("/tokenize", {"messages": SAID}),
    "detokenize": ("/detokenize", {"tokens": [97]}),
    "count": ("/v1/messages/count_tokens", {"messages": SAID}),
    "embeddings": ("/v1/embeddings", {"input": "Hello"}),
}


class Embedding(Engine):
    async def embed(self, inputs: Any, encoding_format: Any, dimensions: Any) -> dict[str, Any]:
        return {"object": "list", "data": []}


class Route:
    """The route to an engine of one model."""

    def __init__(self, model: str, context: int) -> None:
        engine: Any = Embedding()
        facts = EngineFacts(model, None, HERMES, True, len(TINY), context, 1, ())
        tool_format = choose_format(HERMES, supports_tools=True)
        template = ChatTemplate(engine, facts, TINY)
        self._ready = ReadyEngine(engine, facts, TINY, template, SlotTable(1), tool_format, name=model)
        self.down = False

    def ready(self) -> ReadyEngine:
        if self.down:
            raise EngineUnavailable("the engine is away; ask again")
        return self._ready

    def report_loss(self) -> None:
        raise AssertionError("the engine is there")


@asynccontextmanager
async def serving(routes: dict[str, Route], **aliases: tuple[str, ...]) -> AsyncGenerator[httpx2.AsyncClient]:
    config, metrics, engines = GatewayConfig(), Metrics(), EnginePool(routes, aliases=aliases)
    tokens = ResultTokens({}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test.tokens")))
    async with Proxy(config, metrics) as proxy:
        agent = Agent(engines, CallRunner(proxy, tokens, config.limits), config.limits, metrics)
        frames = FrameResponder(WireOffer.of(config.wire), metrics.wire, None)
        endpoints = (
            MessagesEndpoint(agent, engines, config.limits, metrics),
            ChatEndpoint(agent, config.limits, metrics, frames),
            CompletionsEndpoint(engines, config.limits, metrics, frames),
            ResponsesEndpoint(agent, config.limits, metrics),
            ModelEndpoint(agent, engines, config.limits),
        )
        app = Starlette(routes=[route for endpoint in endpoints for route in endpoint.routes()])
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://localhost") as http:
            yield http


def two() -> dict[str, Route]:
    return {"desk": Route("small", 1000), "attic": Route("large", 2000), "cellar": Route("large", 2000)}


@each_of("api", [*REQUESTS, *COUNTS])
async def test_one_model_answers_to_any_name(api: str) -> None:
    path, body = {**REQUESTS, **COUNTS}[api]
    async with serving({"a": Route("small", 1000), "b": Route("small", 1000)}) as http:
        for named in ({}, {"model": "small"}, {"model": "gpt-99"}):
            assert (await http.post(path, json={**body, **named})).status_code == 200


@pytest.mark.parametrize("api", REQUESTS)
async def test_of_several_the_one_that_is_named_answers(api: str) -> None:
    path, body = REQUESTS[api]
    async with serving(two(), desk=("tiny", "nano"), attic=("big",)) as http:
        for name, model in {
            "small": "small",
            "tiny": "small",
            "nano": "small",
            "large": "large",
            "big": "large",
        }.items():
            answer = await http.post(path, json={**body, "model": name})
            assert (answer.status_code, answer.json()["model"]) == (200, model)
        assert (await http.post(path, json=body)).status_code in {200, 400}


@each_of("api", [*REQUESTS, *COUNTS])
async def test_of_several_a_name_that_none_has_is_404_that_lists_them(api: str) -> None:
    path, body = {**REQUESTS, **COUNTS}[api]
    async with serving(two(), desk=("tiny",)) as http:
        answer = await http.post(path, json={**body, "model": "gpt-99"})

    assert answer.status_code == 404
    error = answer.json()["error"]
    assert "'gpt-99'" in error["message"]
    assert "'large', 'small', 'tiny'" in error["message"]
    assert error.get("code") == "model_not_found" or error["type"] == "not_found_error"


async def test_context_is_that_of_the_named_model() -> None:
    async with serving(two()) as http:
        for model, context in (("small", 1000), ("large", 2000)):
            counted = (await http.post("/tokenize", json={"prompt": "Hello", "model": model})).json()
            assert counted["max_model_len"] == context


@pytest.mark.parametrize("headers", [{}, {"anthropic-version": "2023-06-01"}])
async def test_all_models_are_listed_once_and_told_of(headers: dict[str, str]) -> None:
    async with serving(two(), desk=("tiny",)) as http:
        listed = (await http.get("/v1/models", headers=headers)).json()["data"]
        assert [model["id"] for model in listed] == ["small", "large"]
        for name, model in {"small": "small", "tiny": "small", "large": "large"}.items():
            assert (await http.get(f"/v1/models/{name}", headers=headers)).json()["id"] == model
        assert (await http.get("/v1/models/gpt-99", headers=headers)).status_code == 404


async def test_a_model_whose_engines_are_away_is_there_later_and_no_other_answers_for_it() -> None:
    routes = two()
    async with serving(routes, attic=("big",)) as http:
        await http.get("/v1/models")
        routes["attic"].down = routes["cellar"].down = True
        for name in ("large", "big"):
            answer = await http.post("/v1/chat/completions", json={"messages": SAID, "model": name})
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_unavailable")
        assert [model["id"] for model in (await http.get("/v1/models")).json()["data"]] == ["small"]
        routes["cellar"].down = False
        assert (await http.post("/v1/chat/completions", json={"messages": SAID, "model": "large"})).status_code == 200


async def test_an_alias_of_an_engine_that_has_not_come_up_yet_is_no_other_model() -> None:
    routes = two()
    routes["attic"].down = routes["cellar"].down = True
    async with serving(routes, attic=("big",)) as http:
        answers = [
            await http.post("/v1/chat/completions", json={"messages": SAID, "model": name}) for name in ("big", "any")
        ]

    assert [answer.status_code for answer in answers] == [503, 200]


async def test_with_all_engines_away_each_says_why() -> None:
    routes = two()
    for route in routes.values():
        route.down = True
    async with serving(routes) as http:
        answer = await http.get("/v1/models")

    assert answer.status_code == 503
    assert "desk: the engine is away" in answer.json()["error"]["message"]
    assert "cellar: the engine is away" in answer.json()["error"]["message"]
