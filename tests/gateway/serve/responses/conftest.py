"""The Responses endpoint in this process: a real agent, a real proxy with real servers, an engine with a script."""

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.agent import Agent, CallRunner
from gateway.config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.context.large_result_store import ResultStore
from gateway.engine.interface import (
    EngineFacts,
    Generated,
    GenerateRequest,
    GenerationEnd,
    GenerationEvent,
    Timings,
    shared_prefix,
)
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineUnavailable
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import Principal
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.replicas import ALONE, Replicas
from gateway.serve.http.request_parts import PRINCIPAL
from gateway.serve.responses.response_endpoint import ResponsesEndpoint
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map

SAYS = Path(__file__).parents[3] / "e2e" / "servers" / "says.py"
TINY = tiny_map()
END = TINY.special_tokens["<|im_end|>"]
HERMES = "<tool_call> {{ tools }} <think> <|im_start|>"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


class ScriptedEngine:
    """Writes the texts that a test gives it, one a generation, id by id; its cache holds the last one."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.prompts: list[str] = []
        self.grammars: list[str | None] = []
        self.special: list[list[int]] = []
        """Control tokens of each prompt."""
        self.held: list[int] = []
        self.breaks_after: int | None = None
        self.holds: anyio.Event | None = None
        """Set: the engine has written its first id and waits for ever."""
        self.gate = anyio.Event()
        """Nothing is written before it is set."""
        self.gate.set()

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
        def shown(message: Any) -> str:
            thought = message.get("reasoning_content")
            before = f"<think>\n{thought.strip()}\n</think>\n\n" if thought else ""
            return f"<|im_start|>{message['role']}\n{before}{(message.get('content') or '').strip()}<|im_end|>\n"

        return "".join(map(shown, messages)) + "<|im_start|>assistant\n"

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        self.prompts.append(TINY.decode(request.prompt))
        self.special.append([token_id for token_id in request.prompt if token_id in TINY.special_ids])
        self.grammars.append(request.grammar)
        yield self._events(request)

    async def _events(self, request: GenerateRequest) -> AsyncIterator[GenerationEvent]:
        prompt, most = list(request.prompt), request.max_tokens
        cached = shared_prefix(self.held, prompt)
        ids = [*TINY.encode(self.texts.pop(0), specials=True), END]
        await self.gate.wait()
        for number, token_id in enumerate(ids[:most]):
            if number == self.breaks_after:
                raise EngineUnavailable("the engine broke off")
            tops = ((token_id, -0.5), (END, -1.5))[: request.top_logprobs]
            yield Generated((token_id,), False, (-0.5,), (tops,)) if request.logprobs else Generated((token_id,))
            if self.holds is not None:
                self.holds.set()
                await anyio.sleep_forever()
        self.held = prompt + ids[:-1]
        timings = Timings(
            prompt_n=len(prompt) - cached,
            cache_n=cached,
            generated_n=len(ids),
            prompt_seconds=0,
            generate_seconds=0,
        )
        stopped = len(ids) <= most
        yield GenerationEnd("stop" if stopped else "length", END if stopped else None, timings)


async def at_rest(number: int) -> bool:
    """A scripted engine does nothing between generations."""
    return True


class Route:
    """The route to it."""

    def __init__(self, engine: ScriptedEngine, context: int) -> None:
        facts = EngineFacts("scripted", None, HERMES, True, len(TINY), context, 1, ())
        template = ChatTemplate(cast("Any", engine), facts, TINY)
        slots = SlotTable(1, at_rest=at_rest)
        tool_format = choose_format(HERMES, supports_tools=True)
        self._ready = ReadyEngine(cast("Any", engine), facts, TINY, template, slots, tool_format)

    def ready(self) -> ReadyEngine:
        return self._ready

    def report_loss(self) -> None:
        """It stays."""


class Stage:
    """The endpoint, and a client of it."""

    def __init__(
        self, app: ASGIApp, http: httpx2.AsyncClient, engine: ScriptedEngine, metrics: Metrics, proxy: Proxy
    ) -> None:
        self.app = app
        self.http = http
        self.engine = engine
        self.metrics = metrics
        self.proxy = proxy
        self.principal = Principal("ann")

    def reset(self) -> None:
        """As it was opened, in all that a test may set."""
        self.principal = Principal("ann")
        self.engine.__init__()

    async def post(self, *texts: str, **body: Any) -> httpx2.Response:
        """Ask, where the model writes `texts`."""
        self.engine.texts = list(texts)
        return await self.http.post("/v1/responses", json={"model": "any", **body})

    async def ask(self, *texts: str, **body: Any) -> dict[str, Any]:
        """The response, whole or as its stream ends with it; all that is told is what OpenAI's types allow."""
        if body.get("stream"):
            events = await self.events(*texts, **body)
            return events[-1]["response"]
        answer = await self.post(*texts, **body)
        assert answer.status_code == 200, answer.text
        Response.model_validate(answer.json(), strict=True)
        return answer.json()

    async def events(self, *texts: str, **body: Any) -> list[dict[str, Any]]:
        """The events of a stream, each of which OpenAI's types allow."""
        answer = await self.post(*texts, **{**body, "stream": True})
        assert answer.status_code == 200, answer.text
        return read_events(answer.text)

    async def refused(self, status: int = 400, **body: Any) -> dict[str, Any]:
        """The error of a request that is refused."""
        answer = await self.post("unwanted", **body)
        assert answer.status_code == status, answer.text
        return answer.json()["error"]


def read_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, judged."""
    found: list[dict[str, Any]] = []
    for block in text.split("\n\n")[:-1]:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event, strict=True)
        found.append(event)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


@asynccontextmanager
async def open_stage(
    *, says: str = "It is 42.", replicas: Replicas = ALONE, context: int = 4000, **limits: Any
) -> AsyncGenerator[Stage]:
    bounds = LimitsConfig(**limits)
    engine, metrics = ScriptedEngine(), Metrics()
    block = json.dumps([{"type": "text", "text": says}])
    upstreams = tuple(
        UpstreamConfig(name=name, command=sys.executable, args=(str(SAYS), block)) for name in ("up", "down")
    )
    config = GatewayConfig(upstreams=upstreams, limits=bounds, prefix="always", tool_search=False)
    tokens = ResultTokens(
        {TINY.map_id: TINY}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test.tokens"))
    )
    async with Proxy(config, metrics) as proxy:
        route = EnginePool({"engine": Route(engine, context)})
        agent = Agent(route, CallRunner(proxy, tokens, bounds, results=ResultStore(bounds, metrics)), bounds, metrics)
        app = Starlette(routes=ResponsesEndpoint(agent, bounds, metrics, replicas).routes())

        async def as_somebody(scope: Scope, receive: Receive, send: Send) -> None:
            scope["state"] = {PRINCIPAL: stage.principal}
            await app(scope, receive, send)

        transport = httpx2.ASGITransport(app=cast("Any", as_somebody))
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            stage = Stage(as_somebody, http, engine, metrics, proxy)
            yield stage


@pytest.fixture(scope="session")
def responses_stage() -> Callable[..., Any]:
    """See `open_stage`."""
    return open_stage


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
