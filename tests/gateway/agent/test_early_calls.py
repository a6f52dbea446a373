"""A call runs from the moment it is closed: while the model still writes, and only as long as anybody wants it."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from gateway.agent import Agent, AnswerOptions, CallRunner
from gateway.agent.events import GenerationFinished, ToolFinished
from gateway.config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.engine.interface import GenerateRequest, GenerationEvent
from gateway.engine.pool.pool import EnginePool
from gateway.errors import EngineUnavailable
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.toolcalls.schema.spec import ToolSpec, validate_call
from gateway.toolcalls.stream.output_events import CallClosed, CallStarted
from leaf_sdk.testing import tiny_map

from .conftest import ScriptedEngine, ScriptedRoute

pytestmark = pytest.mark.anyio

SERVERS = Path(__file__).parents[2] / "e2e" / "servers"
TINY = tiny_map()
QUESTION = [{"role": "user", "content": "What is it?"}]


def say(n: int, name: str = "up__say") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {{"n": {n}}}}}\n</tool_call>'


class WaitingEngine(ScriptedEngine):
    """Stops in the middle of its first text, after `before`, until `until` returns; then writes on, or breaks off."""

    def __init__(self, before, until, *texts, breaks=False):
        super().__init__(*texts)
        # One id more: a special id, as a closing marker is, may be the end of the turn until another follows.
        self._before = len(TINY.encode(before, specials=True)) + 1
        self._until = until
        self._ends_here = breaks

    @asynccontextmanager
    async def generate(self, request: GenerateRequest):
        first = not self.asked
        async with super().generate(request) as events:
            yield self._waiting(events) if first else events

    async def _waiting(self, events: AsyncIterator[GenerationEvent]) -> AsyncIterator[GenerationEvent]:
        count = 0
        async for event in events:
            yield event
            count += 1
            if count == self._before:
                await self._until()
                if self._ends_here:
                    raise EngineUnavailable("the engine broke off")


@pytest.fixture
def bell(tmp_path):
    """A pipe that the tool rings."""
    path = tmp_path / "bell"
    os.mkfifo(path)
    return path


@asynccontextmanager
async def stage(engine, server, *arguments, **limits):
    """An agent over `engine`, with `up__say` of a real server."""
    bounds, metrics, heard = LimitsConfig(**limits), Metrics(), []
    upstream = UpstreamConfig(name="up", command=sys.executable, args=(str(SERVERS / server), *map(str, arguments)))
    notices = TokenNotices(get_logger("test.tokens"))
    tokens = ResultTokens({TINY.map_id: TINY}, level="verify", metrics=metrics, notices=notices)

    async def listen(event):
        heard.append(event)

    async with Proxy(GatewayConfig(upstreams=(upstream,), limits=bounds, prefix="always"), metrics) as proxy:
        runner = CallRunner(proxy, tokens, bounds)
        yield Agent(EnginePool({"engine": ScriptedRoute(engine, 4000)}), runner, bounds, metrics), heard, listen


def ringing(bell):
    """Waits until the tool has rung, and hears what it was called with."""
    heard = []

    async def wait():
        with anyio.fail_after(20):
            heard.append(await anyio.to_thread.run_sync(bell.read_text, abandon_on_cancel=True))

    return heard, wait


async def test_first_of_two_calls_runs_while_the_model_writes_the_second(bell):
    rung, wait = ringing(bell)
    engine = WaitingEngine(say(1), wait, f"{say(1)}\nand", "Done.")
    async with stage(engine, "rings.py", bell) as (agent, events, listen):
        await agent.answer(await agent.open(QUESTION), AnswerOptions(show_calls=True), listen)

    assert rung == ['{"n": 1}']
    kinds = [type(event) for event in events if isinstance(event, CallClosed | GenerationFinished | ToolFinished)]
    assert kinds == [CallClosed, GenerationFinished, ToolFinished, GenerationFinished]


async def test_results_are_spliced_in_the_calls_order_whichever_is_first(bell):
    async def second_rings_first():
        rung, wait = ringing(bell)
        await wait()
        assert rung == ['{"n": 1}']

    text = f"{say(1)}\n{say(2, 'up__nope')}"
    engine = WaitingEngine(say(1), second_rings_first, text, "Done.")
    async with stage(engine, "rings.py", bell) as (agent, events, listen):
        conversation = await agent.open(QUESTION)
        await agent.answer(conversation, AnswerOptions(show_calls=True), listen)

    told = [event for event in events if isinstance(event, ToolFinished)]
    assert [event.call_id for event in told] == [event.id for event in events if isinstance(event, CallStarted)]
    assert [event.is_error for event in told] == [False, True]
    spliced = TINY.decode(engine.asked[1].prompt)
    assert 0 < spliced.rindex('{"n": 1}') < spliced.rindex("up__nope")


async def test_engine_that_breaks_off_takes_the_running_call_with_it():
    async def at_once():
        await anyio.lowlevel.checkpoint()

    engine = WaitingEngine(say(1), at_once, f"{say(1)}\nmore", breaks=True)
    async with stage(engine, "hangs.py", tool_timeout=600.0) as (agent, events, listen):
        conversation = await agent.open(QUESTION)
        with anyio.fail_after(20), pytest.raises(EngineUnavailable, match="broke off"):
            await agent.answer(conversation, AnswerOptions(show_calls=True), listen)

    assert [event for event in events if isinstance(event, ToolFinished)] == []


async def test_client_that_leaves_takes_the_running_call_with_it():
    left = anyio.Event()

    async def leave():
        left.set()
        await anyio.sleep_forever()

    engine = WaitingEngine(say(1), leave, f"{say(1)}\nmore")
    async with stage(engine, "hangs.py", tool_timeout=600.0) as (agent, events, listen):
        conversation = await agent.open(QUESTION)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(agent.answer, conversation, AnswerOptions(show_calls=True), listen)
                await left.wait()
                tasks.cancel_scope.cancel()

    assert [event for event in events if isinstance(event, ToolFinished)] == []


async def test_call_that_ran_before_a_limit_cut_the_model_off_is_told(bell):
    _, wait = ringing(bell)
    wrote = len(TINY.encode(say(1), specials=True))
    engine = WaitingEngine(say(1), wait, say(1) + "x" * 50)
    async with stage(engine, "rings.py", bell) as (agent, events, listen):
        options = AnswerOptions(show_calls=True, max_tokens=wrote + 5)
        finished = await agent.answer(await agent.open(QUESTION), options, listen)

    (told,) = [event for event in events if isinstance(event, ToolFinished)]
    # The next request continues with the result.
    assert (finished.reason, told.text, told.shim_ids) == ("length", '{"n": 1}', len(TINY.encode('{"n": 1}')))


async def test_arguments_that_do_not_fit_the_schema_are_not_sent_and_the_model_is_told_why(bell):
    wrong = '<tool_call>\n{"name": "up__say", "arguments": {"n": "x"}}\n</tool_call>'
    engine = ScriptedEngine(wrong, "Done.")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["m"]}
    async with stage(engine, "rings.py", bell) as (agent, events, listen):
        conversation = await agent.open(QUESTION)
        conversation.asked = replace(conversation.asked, tools=(ToolSpec("up__say", "", schema),))
        with anyio.fail_after(20):
            await agent.answer(conversation, AnswerOptions(show_calls=True), listen)

    (told,) = [event for event in events if isinstance(event, ToolFinished)]
    assert (told.is_error, told.source) == (True, "gateway")
    assert all(problem in told.text for problem in validate_call(conversation.asked.tools[0], {"n": "x"}))
    assert told.text in TINY.decode(engine.asked[1].prompt)
