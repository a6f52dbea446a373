"""What the agent stands on, in this process: a real proxy with a real server, and an engine that follows a script."""

import json
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from gateway.agent import Agent, CallRunner
from gateway.agent.events import AgentEvent
from gateway.config import EngineConfig, GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.context.large_result_store import ResultStore
from gateway.engine.interface import EngineFacts, Generated, GenerateRequest, GenerationEnd, GenerationEvent, Timings
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineRefused, EngineUnavailable, GrammarRefused
from gateway.observe.audit import Audit
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.observe.trajectories import TrajectoryLog
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map

SAYS = Path(__file__).parents[2] / "e2e" / "servers" / "says.py"
TINY = tiny_map()
END = TINY.special_tokens["<|im_end|>"]


class ScriptedEngine:
    """Writes the texts that a test gives it, one a generation, id by id; remembers what it was asked."""

    def __init__(
        self,
        *texts: str | Callable[[str], str],
        breaks: bool = False,
        refuses: str | None = None,
        renders: Callable[[Sequence[Any]], str | None] = lambda tools: None,
    ) -> None:
        """`texts`: each a text, or what makes it of the prompt; `refuses`: what no grammar may hold.

        `renders`: returns why it can't render these tools, if it can't.
        """
        self.refuses = refuses
        self.renders = renders
        self.rendered: list[Sequence[Any]] = []
        self.asked: list[GenerateRequest] = []
        self._texts = list(texts)
        self._breaks = breaks

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
        """ChatML, as SmolLM2 has it."""
        self.rendered.append(tools)
        if (refusal := self.renders(tools)) is not None:
            raise EngineRefused(refusal, 500)
        turns = [f"<|im_start|>{m['role']}\n{m.get('content') or ''}<|im_end|>\n" for m in messages]
        head = f"<|im_start|>system\n{json.dumps(tools)}<|im_end|>\n" if tools else ""
        return head + "".join(turns) + "<|im_start|>assistant\n"

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        self.asked.append(replace(request, prompt=list(request.prompt)))
        if self.refuses is not None and request.grammar is not None and self.refuses in request.grammar:
            raise GrammarRefused("the engine answered 400: failed to parse grammar", 400)
        yield self._events(list(request.prompt), request.max_tokens)

    async def _events(self, prompt: list[int], most: int) -> AsyncIterator[GenerationEvent]:
        text = self._texts.pop(0)
        written = text if isinstance(text, str) else text(TINY.decode(prompt))
        ids = [*TINY.encode(written, specials=True), END]
        for token_id in ids[:most]:
            yield Generated((token_id,))
        if self._breaks:
            raise EngineUnavailable("the engine broke off")
        timings = Timings(prompt_n=len(prompt), cache_n=0, generated_n=len(ids), prompt_seconds=0, generate_seconds=0)
        stopped = len(ids) <= most
        yield GenerationEnd("stop" if stopped else "length", END if stopped else None, timings)


async def at_rest(number: int) -> bool:
    """A scripted engine does nothing between generations."""
    return True


class ScriptedRoute:
    """The route to a scripted engine."""

    def __init__(
        self, engine: ScriptedEngine, context: int, tools_template: str = "", *, hold_calls: bool = False
    ) -> None:
        facts = EngineFacts("scripted", None, tools_template, bool(tools_template), len(TINY), context, 1, ())
        template = ChatTemplate(engine, facts, TINY)  # pyright: ignore[reportArgumentType]
        tool_format = choose_format(facts.chat_template, supports_tools=facts.supports_tools)
        slots = SlotTable(1, at_rest=at_rest)
        given: Any = engine
        self._ready = ReadyEngine(
            *(given, facts, TINY, template, slots, tool_format), settings=EngineConfig(hold_calls=hold_calls)
        )
        self.losses = 0

    def ready(self) -> ReadyEngine:
        return self._ready

    def report_loss(self) -> None:
        self.losses += 1


class Stage:
    """An agent with its engine, and the events of its answers."""

    def __init__(self, agent: Agent, engine: ScriptedEngine, route: ScriptedRoute, metrics: Metrics) -> None:
        self.agent = agent
        self.engine = engine
        self.route = route
        self.pool = EnginePool({"engine": route})
        self.metrics = metrics
        self.events: list[AgentEvent] = []

    async def listen(self, event: AgentEvent) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@asynccontextmanager
async def call_runner(
    limits: LimitsConfig,
    *texts: str,
    audit: Audit | None = None,
    tool_search: Any = "auto",
    folder: Path | None = None,
    **names: Any,
) -> AsyncGenerator[tuple[CallRunner, Metrics]]:
    """Calls of `up__say`, a real server whose result is `texts`, a block each.

    `names`: `overrides`, `safe_names`, and `timeout`, the server's own.
    """
    blocks = json.dumps([{"type": "text", "text": text} for text in texts])
    own: dict[str, Any] = {key: names.pop(key) for key in ("overrides", "results", "timeout") if key in names}
    # An argument of a command has at most 128 KiB.
    file = tempfile.NamedTemporaryFile("w", suffix=".json") if len(blocks) > 100_000 else None  # noqa: SIM115
    if file is not None:
        file.write(blocks)
        file.flush()
    arguments = (str(SAYS), blocks if file is None else file.name)
    upstream = UpstreamConfig(name="up", command=sys.executable, args=arguments, **own)
    metrics = Metrics()
    notices = TokenNotices(get_logger("test.tokens"))
    tokens = ResultTokens({TINY.map_id: TINY}, level="verify", metrics=metrics, notices=notices)
    config = GatewayConfig(upstreams=(upstream,), limits=limits, prefix="always", tool_search=tool_search, **names)
    with file or nullcontext():
        async with Proxy(config, metrics) as proxy:
            yield CallRunner(proxy, tokens, limits, audit, results=ResultStore(limits, metrics, folder)), metrics


@asynccontextmanager
async def stage(
    *generations: str | Callable[[str], str],
    says: str = "It is 42.",
    context: int = 4000,
    breaks: bool = False,
    hold_calls: bool = False,
    defer_client_tools: Any = "auto",
    suggested_tools: int = 3,
    tools_template: str = "",
    tool_search: Any = False,
    refuses: str | None = None,
    renders: Callable[[Sequence[Any]], str | None] = lambda tools: None,
    trajectories: Path | None = None,
    names: Mapping[str, Any] = MappingProxyType({}),
    audit: Audit | None = None,
    **limits: Any,
) -> AsyncGenerator[Stage]:
    """An agent whose model writes `generations`, one after the other; `tools_template` renders tools, it says.

    `trajectories`: the file of them.
    """
    bounds = LimitsConfig(**limits)
    engine = ScriptedEngine(*generations, breaks=breaks, refuses=refuses, renders=renders)
    route = ScriptedRoute(engine, context, tools_template, hold_calls=hold_calls)
    async with call_runner(bounds, says, audit=audit, tool_search=tool_search, **names) as (runner, metrics):
        with nullcontext() if trajectories is None else TrajectoryLog(trajectories, metrics.access) as lines:
            agent = Agent(
                *(EnginePool({"engine": route}), runner, bounds, metrics),
                trajectories=lines,
                defer_client_tools=defer_client_tools,
                suggested_tools=suggested_tools,
            )
            yield Stage(agent, engine, route, metrics)


@pytest.fixture
def open_stage() -> Callable[..., Any]:
    """See `stage`."""
    return stage


@pytest.fixture
def open_runner() -> Callable[..., Any]:
    """See `call_runner`."""
    return call_runner
