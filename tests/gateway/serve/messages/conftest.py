"""The endpoint of Anthropic's API over an engine that writes what a test says, and that API's package as its client."""

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import anthropic
import anyio
import httpx2
import pytest
from starlette.applications import Starlette

from gateway.agent import Agent, CallRunner
from gateway.config import GatewayConfig, UpstreamConfig
from gateway.context.large_result_store import ResultStore
from gateway.engine.interface import EngineFacts, Generated, GenerateRequest, GenerationEnd, GenerationEvent, Timings
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
from gateway.serve.http.error_answers import no_such_path
from gateway.serve.messages.message_endpoint import MessagesEndpoint
from gateway.serve.openai.chat import ChatEndpoint
from gateway.serve.openai.model_endpoint import ModelEndpoint
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map

SAYS: Final = Path(__file__).parents[3] / "e2e" / "servers" / "says.py"
TINY: Final = tiny_map()
END: Final = TINY.special_tokens["<|im_end|>"]
HERMES: Final = "<tool_call> {{ tools }} <|im_start|> <think>"


class Engine:
    """Writes the texts that a test gives it, one a generation; remembers its prompts."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.prompts: list[str] = []
        self.breaks_after: int | None = None
        self.gate = anyio.Event()
        """Nothing is written before it is set."""
        self.gate.set()
        self.left = anyio.Event()
        """A generation is over, or was given up."""

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
        """ChatML, with tools, thoughts and calls as Qwen writes them."""
        turns = [f"<|im_start|>{m['role']}\n{_thought(m)}{m.get('content') or ''}<|im_end|>\n" for m in messages]
        return "".join(turns) + "<|im_start|>assistant\n"

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        self.prompts.append(TINY.decode(request.prompt))
        try:
            yield self._events(len(request.prompt), request.max_tokens)
        finally:
            self.left.set()

    async def _events(self, prompt: int, most: int) -> AsyncIterator[GenerationEvent]:
        await self.gate.wait()
        ids = [*TINY.encode(self.texts.pop(0), specials=True), END]
        for number, token_id in enumerate(ids[:most]):
            if number == self.breaks_after:
                raise EngineUnavailable("the engine broke off; ask again")
            yield Generated((token_id,))
        timings = Timings(prompt_n=prompt - 5, cache_n=5, generated_n=len(ids), prompt_seconds=0, generate_seconds=0)
        stopped = len(ids) <= most
        yield GenerationEnd("stop" if stopped else "length", END if stopped else None, timings)


def _thought(message: Any) -> str:
    thought = message.get("reasoning_content")
    return f"<think>{thought}</think>" if thought else ""


class Route:
    """The route to it."""

    def __init__(self, engine: Engine, context: int) -> None:
        given: Any = engine
        facts = EngineFacts("scripted", None, HERMES, True, len(TINY), context, 1, ())
        tool_format = choose_format(HERMES, supports_tools=True)
        self._ready = ReadyEngine(given, facts, TINY, ChatTemplate(given, facts, TINY), SlotTable(1), tool_format)
        self.down = False

    def ready(self) -> ReadyEngine:
        if self.down:
            raise EngineUnavailable("the engine is away; ask again")
        return self._ready

    def report_loss(self) -> None:
        """Told of each break."""


class Site:
    """A running endpoint, and clients of it."""

    def __init__(self, engine: Engine, route: Route, http: httpx2.AsyncClient, app: Starlette, agent: Agent) -> None:
        self.engine = engine
        self.agent = agent
        self.route = route
        self.http = http
        self.app = app
        self.client = anthropic.AsyncAnthropic(
            base_url="http://localhost",
            api_key="none",
            max_retries=0,
            http_client=http,
            _strict_response_validation=True,
        )

    def says(self, *texts: str) -> None:
        """What the model writes next."""
        self.engine.texts = list(texts)

    async def post(self, body: dict[str, Any] | bytes, path: str = "/v1/messages", **headers: str) -> httpx2.Response:
        sent = {"content-type": "application/json", **{n.replace("_", "-"): v for n, v in headers.items()}}
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return await self.http.post(path, headers=sent, **cast("Any", content))


@asynccontextmanager
async def running(context: int = 4000, says: str = "It is late.") -> AsyncGenerator[Site]:
    block = json.dumps([{"type": "text", "text": says}])
    config = GatewayConfig(upstreams=(UpstreamConfig("up", sys.executable, (str(SAYS), block)),))
    metrics, engine = Metrics(), Engine()
    route = Route(engine, context)
    given = EnginePool({"engine": route})
    tokens = ResultTokens({}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test.tokens")))
    async with Proxy(config, metrics) as proxy:
        calls = CallRunner(proxy, tokens, config.limits, results=ResultStore(config.limits, metrics))
        agent = Agent(given, calls, config.limits, metrics, volatile=config.engine.volatile)
        frames = FrameResponder(WireOffer.of(config.wire), metrics.wire, None)
        messages = MessagesEndpoint(agent, given, config.limits, metrics)
        openai = ChatEndpoint(agent, config.limits, metrics, frames)
        model = ModelEndpoint(agent, given, config.limits)
        app = Starlette(
            routes=[*messages.routes(), *openai.routes(), *model.routes()],
            exception_handlers={404: no_such_path, 405: no_such_path},
        )
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Site(engine, route, http, app, agent)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def shared_site() -> AsyncGenerator[Site]:
    async with running() as site:
        yield site


@pytest.fixture
def site(shared_site: Site) -> Site:
    """An endpoint whose model writes what a test says next."""
    shared_site.engine.texts, shared_site.engine.prompts = [], []
    shared_site.engine.breaks_after, shared_site.route.down = None, False
    return shared_site


@pytest.fixture
def small_site() -> Any:
    """Runs one with a small context."""
    return running
