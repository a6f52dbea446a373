"""The three APIs of answers over one engine with a script, for what they must do alike."""

import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx2
from starlette.applications import Starlette
from starlette.types import ASGIApp

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
from gateway.observe.tracing import Tracing
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.serve.codec.frame_negotiation import WireOffer
from gateway.serve.codec.frames import FrameResponder
from gateway.serve.http.middleware import TracedRequests
from gateway.serve.messages.message_endpoint import MessagesEndpoint
from gateway.serve.openai.chat import ChatEndpoint
from gateway.serve.openai.completions import CompletionsEndpoint
from gateway.serve.openai.model_endpoint import ModelEndpoint
from gateway.serve.responses.response_endpoint import ResponsesEndpoint
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map

SAYS: Final = Path(__file__).parents[3] / "e2e" / "servers" / "says.py"
TINY: Final = tiny_map()
END: Final = TINY.special_tokens["<|im_end|>"]
HERMES: Final = "<tool_call> {{ tools }} <think> <|im_start|>"
SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}, "text": {"type": "string"}}}
CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
COMPLETIONS: Final = "/v1/completions"
EMBEDDINGS: Final = "/v1/embeddings"


class Engine:
    """Writes the texts that a test gives it, one a generation; remembers its prompts."""

    def __init__(self, tool_format: str) -> None:
        self.format = tool_format
        self.texts: list[str | Callable[[str], str]] = []
        """Each a text, or what makes it of the prompt."""
        self.prompts: list[str] = []
        self.traces: list[dict[str, str]] = []
        """The headers with the trace context, one a generation."""
        self.instead_of_end: Callable[[], Awaitable[None]] | None = None
        """What happens behind the last id, where the generation does not end."""

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
        """ChatML with calls as models of the format write them; it asks for the members of arguments, as many do."""
        written = _kimi if self.format == "kimi_k2" else _hermes

        def shown(message: Any) -> str:
            calls = "".join(map(written, message.get("tool_calls") or ()))
            said = message.get("content") or ""
            words = f"\n{said}" if said or not calls else ""
            return f"<|im_start|>{_heading(message)}{words}{calls}<|im_end|>\n"

        def _heading(message: Any) -> str:
            answers = message["role"] == "tool" and self.format == "kimi_k2"
            return f"tool\n## Return of {message['tool_call_id']}" if answers else message["role"]

        return "".join(map(shown, messages)) + "<|im_start|>assistant\n"

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        self.prompts.append(TINY.decode(request.prompt))
        self.traces.append(dict(request.trace))
        text = self.texts.pop(0)
        written = text if isinstance(text, str) else text(self.prompts[-1])
        yield self._events(written, len(request.prompt), request.max_tokens)

    async def embed(self, inputs: Sequence[Sequence[int]], *_how: Any) -> dict[str, Any]:
        """A vector for each input; refused where a test gave no text."""
        if not self.texts:
            raise EngineUnavailable("the engine went away")
        return {"object": "list", "data": [{"embedding": [1.0], "index": n} for n in range(len(inputs))]}

    async def _events(self, text: str, prompt: int, most: int) -> AsyncIterator[GenerationEvent]:
        ids = [*TINY.encode(text, specials=True), END]
        for token_id in ids[:most]:
            yield Generated((token_id,))
        if self.instead_of_end is not None:
            await self.instead_of_end()
        stopped = len(ids) <= most
        timings = Timings(prompt_n=prompt, cache_n=0, generated_n=len(ids), prompt_seconds=0, generate_seconds=0)
        yield GenerationEnd("stop" if stopped else "length", END if stopped else None, timings)


def _hermes(call: Any) -> str:
    arguments = dict(json.loads(call["function"]["arguments"]))
    written = {"name": call["function"]["name"], "arguments": arguments}
    return f"\n<tool_call>\n{json.dumps(written, ensure_ascii=False)}\n</tool_call>"


def _kimi(call: Any) -> str:
    arguments = json.dumps(dict(json.loads(call["function"]["arguments"])))
    return f"\n<|tool_call_begin|>{call['id']}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"


class Route:
    """The route to it."""

    def __init__(self, engine: Any, context: int) -> None:
        facts = EngineFacts("scripted", None, HERMES, True, len(TINY), context, 1, ())
        tool_format = choose_format(HERMES, supports_tools=True, wanted=engine.format)
        self._ready = ReadyEngine(engine, facts, TINY, ChatTemplate(engine, facts, TINY), SlotTable(1), tool_format)

    def ready(self) -> ReadyEngine:
        return self._ready

    def report_loss(self) -> None:
        """It stays."""


class Apis:
    """The running endpoints, and a client of them."""

    def __init__(self, engine: Engine, http: httpx2.AsyncClient, proxy: Proxy, app: ASGIApp, metrics: Metrics) -> None:
        self.engine = engine
        self.metrics = metrics
        self.proxy = proxy
        self.http = http
        self.app = app

    async def post(self, path: str, body: dict[str, Any], *says: Any, **headers: str) -> httpx2.Response:
        """Ask, where the model writes `says`. Each body gets what its API requires."""
        self.engine.texts = list(says)
        return await self.http.post(path, json=whole_body(path, body), headers=headers)

    async def ask(self, path: str, body: dict[str, Any], *says: Any) -> dict[str, Any]:
        """The answer, which must be one."""
        answer = await self.post(path, body, *says)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def events(self, path: str, body: dict[str, Any], *says: Any) -> list[dict[str, Any]]:
        """The events of a stream."""
        answer = await self.post(path, {**body, "stream": True}, *says)
        assert answer.status_code == 200, answer.text
        lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
        return [json.loads(line) for line in lines]


def whole_body(path: str, body: dict[str, Any]) -> dict[str, Any]:
    """A body with what its API requires."""
    return {"model": "any", **({"max_tokens": 2000} if path == MESSAGES else {}), **body}


@asynccontextmanager
async def running(
    context: int = 8000,
    tool_format: str = "hermes",
    *,
    says: str = "",
    config: GatewayConfig | None = None,
    tracing: Tracing | None = None,
) -> AsyncGenerator[Apis]:
    """The APIs in this process. `says`: what the gateway's only tool, `say`, answers; without it there is none."""
    told = json.dumps([{"type": "text", "text": says}])
    upstreams = (UpstreamConfig("up", sys.executable, (str(SAYS), told)),) if says else ()
    config, metrics, engine = config or GatewayConfig(upstreams=upstreams), Metrics(), Engine(tool_format)
    pool = EnginePool({"engine": Route(engine, context)})
    tokens = ResultTokens({}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test.tokens")))
    async with Proxy(config, metrics, tracing) as proxy:
        results = ResultStore(config.limits, metrics)
        runner = CallRunner(proxy, tokens, config.limits, tracing=tracing, results=results)
        agent = Agent(pool, runner, config.limits, metrics, tracing=tracing)
        frames = FrameResponder(WireOffer.of(config.wire), metrics.wire, None)
        app: ASGIApp = Starlette(
            routes=[
                *ChatEndpoint(agent, config.limits, metrics, frames).routes(),
                *ResponsesEndpoint(agent, config.limits, metrics).routes(),
                *MessagesEndpoint(agent, pool, config.limits, metrics).routes(),
                *CompletionsEndpoint(pool, config.limits, metrics, frames, tracing).routes(),
                *ModelEndpoint(agent, pool, config.limits, tracing).routes(),
            ]
        )
        if tracing is not None:
            app = TracedRequests(app, tracing, (CHAT, RESPONSES, MESSAGES, COMPLETIONS, EMBEDDINGS))
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield Apis(engine, http, proxy, app, metrics)
