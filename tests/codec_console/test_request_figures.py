"""Random conversations: the list, the page of a conversation, Why, `codec`, and `codec-gateway why` say the same.

The engine is a model of llama.cpp's slots: it keeps what each slot processed and reports how much of a prompt it found
there, or, where an example wants it, a number that can't be true. Clients edit histories, branch, change options, stop
reading, and ask several things at once; engines and gateways are restarted, and memory is evicted.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codec_console.listing import Listings, RowFilter
from codec_console.transcript import transcript_of
from codec_console.transcript_json import ViewOptions
from codec_console.turns import TurnTable
from codec_console.why import row_of_request
from gateway.agent import Agent, AnswerOptions, CallRunner
from gateway.agent.events import AgentEvent, Finished, GenerationFinished
from gateway.cli.why import row_of
from gateway.config import EngineConfig, GatewayConfig, LimitsConfig
from gateway.context.memory import Remembered, RequestFigures
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
from gateway.observe.prompt_losses import WORDS
from gateway.proxy.caller import Principal
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.serve.admin.status_report import prompt_report
from gateway.serve.generation.codec_field import Account
from gateway.toolcalls.formats.registry import choose_format
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.testing import tiny_map
from tests.cases import IN_FULL

TINY = tiny_map()
END = TINY.special_tokens["<|im_end|>"]
SLOTS = 2
PAINT = ToolSpec("paint", "Paint", {"type": "object"})
OURS = '<tool_call>{"name": "up__say", "arguments": {}}</tool_call>'
"""A call that the gateway answers itself: there is no such tool."""
THEIRS = '<tool_call>{"name": "paint", "arguments": {}}</tool_call>'
WRITES = ("It is 42.", "<think>So.</think>One.", "hello world, hello", THEIRS, OURS, "")


@dataclass
class SlotModel:
    """llama.cpp's slots: each keeps what it processed, and a prompt's last token is always processed again."""

    cached: list[list[int]] = field(default_factory=lambda: [[] for _ in range(SLOTS)])
    writes: list[str] = field(default_factory=list)
    lies: int | None = None
    """What it reports as cached instead of the truth."""
    breaks: bool = False

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = (), _options: Any = None) -> str:
        turns = [f"<|im_start|>{m['role']}\n{m.get('content') or ''}<|im_end|>\n" for m in messages]
        return "".join(turns) + "<|im_start|>assistant\n"

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        yield self._events(list(request.prompt), request)

    async def _events(self, prompt: list[int], request: GenerateRequest) -> AsyncIterator[GenerationEvent]:
        slot = request.slot or 0
        found = min(shared_prefix(self.cached[slot], prompt), len(prompt) - 1) if request.reuse else 0
        text = self.writes.pop(0) if self.writes else "Well."
        ids = [*TINY.encode(text, specials=True), END]
        self.cached[slot] = list(prompt)
        for token_id in ids[: request.max_tokens]:
            await anyio.lowlevel.checkpoint()
            yield Generated((token_id,))
            self.cached[slot].append(token_id)
        if self.breaks:
            raise EngineUnavailable("the engine broke off")
        self.cached[slot].pop()
        cached = found if self.lies is None else self.lies
        timings = Timings(len(prompt) - cached, cached, len(ids), 0.1, 0.2)
        stopped = len(ids) <= request.max_tokens
        yield GenerationEnd("stop" if stopped else "length", END if stopped else None, timings)


class Route:
    def __init__(self, model: SlotModel) -> None:
        self._model = model
        self.restart()

    def restart(self) -> None:
        """A new start of the engine, with empty slots."""
        self._model.cached = [[] for _ in range(SLOTS)]
        facts = EngineFacts("slots", None, "reasoning_effort", False, len(TINY), 4000, SLOTS, ())
        given: Any = self._model
        template = ChatTemplate(given, facts, TINY)
        slots = SlotTable(SLOTS, at_rest=at_rest)
        self._ready = ReadyEngine(
            *(given, facts, TINY, template, slots, choose_format("", supports_tools=False)),
            settings=EngineConfig(hold_calls=False),
        )

    def ready(self) -> ReadyEngine:
        return self._ready

    def report_loss(self) -> None:
        pass


@dataclass(frozen=True)
class Parts:
    """What is slow to make, made once for all examples."""

    loop: asyncio.Runner
    metrics: Metrics
    calls: CallRunner


async def at_rest(_number: int) -> bool:
    return True


class Left(Exception):
    """A client that stops reading."""


@dataclass
class Request:
    """What one request's client was told."""

    answer_id: str
    codec: dict[str, Any]
    usage: Finished
    figures: RequestFigures | None
    continues: bool


class World:
    """A gateway, its engine, its clients, and what each request was told."""

    def __init__(self, parts: Parts, memory_bytes: int, *, watched: bool) -> None:
        self.model = SlotModel()
        self.route = Route(self.model)
        self._parts, self._memory_bytes, self._watched = parts, memory_bytes, watched
        self.restart()

    def restart(self) -> None:
        """The gateway starts: nothing is remembered or counted."""
        self._counted = self._parts.metrics.get_prompt_tokens()
        limits = LimitsConfig(memory_bytes=self._memory_bytes, turns=3)
        self.agent = Agent(EnginePool({"engine": self.route}), self._parts.calls, limits, self._parts.metrics)
        self.agent.recall.watch(lambda: self._watched)
        self.requests: list[Request] = []
        self.histories: list[list[dict[str, Any]]] = [[]]

    async def ask(self, messages: list[dict[str, Any]], principal: str, leaves: int | None, **asked: Any) -> None:
        """One request. `leaves`: after how many events its client stops reading."""
        options, tools = asked.pop("options"), asked.pop("tools")
        events: list[AgentEvent] = []

        async def listen(event: AgentEvent) -> None:
            events.append(event)
            if leaves is not None and len(events) > leaves:
                raise Left

        conversation = await self.agent.open(
            messages, client_tools=tools, principal=Principal(principal), options=options
        )
        with suppress(Left, EngineUnavailable):
            finished = await self.agent.answer(conversation, AnswerOptions(**asked), listen)
            self._keep(
                conversation.answer_id, messages, events, finished, continues=conversation.continuation.has_answers
            )

    def _keep(
        self, answer_id: str, messages: list[dict[str, Any]], events: list[AgentEvent], usage: Finished, **more: bool
    ) -> None:
        account = Account()
        for event in events:
            if isinstance(event, GenerationFinished | RequestFigures):
                account.add(event)
        told = [event for event in events if isinstance(event, RequestFigures)]
        assert len(told) <= 1
        self.requests.append(Request(answer_id, account.codec(), usage, told[0] if told else None, **more))
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in events
            if isinstance(call, CallClosed)
        ]
        content = "".join(event.text for event in events if isinstance(event, Content))
        answer = {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}
        self.histories.append([*messages, answer])

    @property
    def nodes(self) -> Iterator[Remembered]:
        """Every answer that is remembered."""
        for last in self.agent.recall.conversations(1000):
            yield from last.chain()

    def check(self) -> None:
        """Compare every place."""
        listed = {each.answer_id: each for each in self.agent.recall.last()}
        nodes = {node.answer_id: node for node in self.nodes}
        assert len(listed) == len(self.agent.recall.last())
        for request in self.requests:
            self._check_codec(request)
            told = listed.get(request.answer_id)
            assert (told is not None) == ("prompt" in request.codec)
            node = nodes.get(request.answer_id)
            if told is not None:
                self._check_why(request, told, node)
            if node is not None:
                self._check_console(request, node)
        for figures in [*(each.figures for each in listed.values()), *(node.figures for node in nodes.values())]:
            if figures is not None:
                check_bounds(figures)
        self._check_list()

    def _check_codec(self, request: Request) -> None:
        prompt = request.codec.get("prompt")
        assert 0 <= request.usage.cached_ids <= request.usage.prompt_ids
        for turn in request.codec["turns"]:
            assert turn["cache_n"] is None or min(turn["cache_n"], turn["prompt_n"]) >= 0
        if prompt is not None:
            assert request.continues
            # The same numbers as in `usage`.
            usage = (request.usage.prompt_ids, request.usage.cached_ids)
            assert (prompt["prompt_tokens"], prompt["cached_tokens"]) == usage

    def _check_why(self, request: Request, told: Any, node: Remembered | None) -> None:
        prompt = request.codec["prompt"]
        report = prompt_report(told)
        shared = [key for key in report if key in prompt or key == "reason"]
        assert {"prompt_tokens", "cached_tokens", "processed_tokens", "held", "reused", "lost"} < set(shared)
        assert {key: report[key] for key in shared} == {key: prompt.get(key) for key in shared}
        printed = row_of(report)
        assert printed[2:5] == tuple(str(prompt[key]) for key in ("prompt_tokens", "cached_tokens", "lost"))
        assert printed[5] == (prompt["reason"] if prompt["lost"] else "-")
        row = row_of_request(told, None)
        assert row.figures.counts == {key: prompt[key] for key in row.figures.counts}
        assert row.words == (WORDS[prompt["reason"]] if prompt["lost"] else None)
        if node is not None:
            # What the list shows is known to Why.
            assert row.conversation == node.number

    def _check_console(self, request: Request, node: Remembered) -> None:
        table = TurnTable(transcript_of(node), ViewOptions(TINY, (), texts=True), frozenset())
        answer = next(each.row for each in table.answers if each.row.told.answer_id == request.answer_id)
        figures = answer.told.figures
        if "prompt" in request.codec:
            assert figures is not None
            assert figures.counts == {key: request.codec["prompt"][key] for key in figures.counts}
            assert answer.words == (WORDS[figures.reason] if figures.recomputed and figures.reason else None)
        elif figures is not None:
            assert (figures.prompt, figures.cached) == (request.usage.prompt_ids, request.usage.cached_ids)
            assert (figures.held, figures.recomputed) == (0, 0)
        for turn in answer.turns:
            assert turn.cached is None or 0 <= turn.cached <= (turn.prompt or 0)

    def _check_list(self) -> None:
        rows = [kept.row for kept in Listings().make(self.agent.recall, RowFilter()).rows]
        last = {node.answer_id: node for node in self.agent.recall.conversations(1000)}
        for row in rows:
            chain = last[row.answer_id].chain()
            assert row.figures == chain[-1].figures
            assert row.recomputed == sum(each.figures.recomputed for each in chain if each.figures is not None)
            assert (row.reason is None) == (row.recomputed == 0)
            assert row.when is not None
            assert row.when.utcoffset() is not None
            speed = row.figures.tokens_per_second if row.figures is not None else None
            assert speed is None or 0 < speed < 1e6

    def check_total(self) -> None:
        """What was cached is what the answers report, where every client read its answer to the end."""
        known = [request for request in self.requests if request.codec["turns"][0]["cache_n"] is not None]
        counted = self._parts.metrics.get_prompt_tokens()
        assert {key: counted[key] - before for key, before in self._counted.items()} == {
            "prompt_tokens": sum(each.usage.prompt_ids for each in known),
            "cached_tokens": sum(each.usage.cached_ids for each in known),
        }


def check_bounds(figures: RequestFigures) -> None:
    assert 0 <= figures.cached <= figures.prompt
    assert figures.cached + figures.counts["processed_tokens"] == figures.prompt
    assert min(figures.held, figures.reused, figures.recomputed) >= 0
    assert figures.reused <= figures.cached
    assert figures.reused + figures.recomputed <= figures.held
    assert figures.recomputed <= figures.counts["processed_tokens"]
    assert figures.reason is not None or figures.recomputed == 0


def edited(draw: st.DrawFn, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A history as a client may have changed it."""
    place = draw(st.integers(0, len(messages) - 1))
    match draw(st.sampled_from(("text", "cut", "system"))):
        case "text" if messages[place]["role"] != "tool":
            messages[place] = {**messages[place], "content": f"{messages[place]['content']} Hm."}
        case "cut":
            messages = [*messages[: place + 1], {"role": "user", "content": "Again."}]
        case _:
            messages.insert(0, {"role": "system", "content": draw(st.sampled_from(("Be kind.", "It is noon.")))})
    return messages


def next_request(draw: st.DrawFn, histories: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """The next thing that a client asks, of any conversation so far."""
    # The latest histories are the likeliest.
    back = draw(st.sampled_from((1, 1, 1, 2, 3)))
    messages: list[dict[str, Any]] = json.loads(json.dumps(histories[-min(back, len(histories))]))
    calls = messages[-1].get("tool_calls") or () if messages else ()
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "painted"} for call in calls]
    questions = ("What is it?", "And? " * 9, "Why?")
    messages += results or [{"role": "user", "content": draw(st.sampled_from(questions))}]
    if draw(st.integers(0, 4)) == 0:
        messages = edited(draw, messages)
    return {
        "messages": messages,
        "principal": draw(st.sampled_from(("alice", "alice", "alice", "bob"))),
        "tools": draw(st.sampled_from(((PAINT,), (PAINT,), (PAINT,), ()))),
        "options": draw(st.sampled_from(({}, {}, {}, {"reasoning_effort": "low"}))),
        "stops": draw(st.sampled_from(((), (), ("llo",)))),
        "max_tokens": draw(st.sampled_from((None, None, 3))),
        "leaves": draw(st.sampled_from((None, None, None, 0, 2, 5))),
    }


async def converse(data: st.DataObject, parts: Parts) -> None:
    draw = data.draw
    world = World(parts, draw(st.sampled_from((9_000, 10**7))), watched=draw(st.booleans()))
    left = False
    for _ in range(draw(st.integers(1, 5))):
        match draw(st.sampled_from((*("ask",) * 6, "two", "engine", "gateway"))):
            case "engine":
                world.route.restart()
                continue
            case "gateway":
                histories = world.histories
                world.restart()
                world.histories, left = histories, False
                continue
            case step:
                asked = [next_request(draw, world.histories) for _ in range(2 if step == "two" else 1)]
        world.model.writes = draw(st.lists(st.sampled_from(WRITES), min_size=2, max_size=4))
        world.model.lies = draw(st.sampled_from((None, None, None, None, 10**9, -3)))
        world.model.breaks = draw(st.integers(0, 9)) == 0
        left = left or world.model.breaks or any(each["leaves"] is not None for each in asked)
        async with anyio.create_task_group() as tasks:
            for each in asked:
                tasks.start_soon(ask, world, each)
        world.check()
    if not left:
        world.check_total()


async def ask(world: World, asked: dict[str, Any]) -> None:
    await world.ask(asked.pop("messages"), asked.pop("principal"), asked.pop("leaves"), **asked)


@pytest.fixture(scope="module")
def parts() -> Iterator[Parts]:
    metrics = Metrics()
    notices = TokenNotices(get_logger("test.tokens"))
    tokens = ResultTokens({TINY.map_id: TINY}, level="verify", metrics=metrics, notices=notices)
    calls = CallRunner(Proxy(GatewayConfig(upstreams=()), metrics), tokens, LimitsConfig())
    with asyncio.Runner() as loop:
        yield Parts(loop, metrics, calls)


@given(data=st.data())
@settings(max_examples=500 if IN_FULL else 150)
def test_all_places_say_the_same_of_every_request(parts: Parts, data: st.DataObject) -> None:
    parts.loop.run(converse(data, parts))
