"""What stands before a result is given to the engine while the tool works, where it is sure to follow."""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.agent import AnswerOptions, CallRunner
from gateway.agent.calls.runner import Answered
from gateway.agent.events import Finished, GenerationFinished
from gateway.agent.generate.generation_options import ToolChoice
from gateway.agent.turn import ANSWER_ROOM
from gateway.app.services import Services, open_services
from gateway.config import EngineConfig, GatewayConfig, LimitsConfig, TokensConfig, UpstreamConfig
from gateway.context.compose.conversation import Conversation
from gateway.engine.interface import Filled, Generated, GenerationEnd, Sampling
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.slots.prefill import Prefill, Told
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineUnavailable
from gateway.observe.metrics import Metrics
from gateway.proxy.caller import ANYBODY
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
WAITS = Path(__file__).parents[2] / "e2e" / "servers" / "waits.py"
QUESTION = [{"role": "user", "content": "What is it?"}]
SAY = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'
OWN = '<tool_call>\n{"name": "paint", "arguments": {}}\n</tool_call>'
PAINT = ToolSpec("paint", "Paint it", {"type": "object", "properties": {}})
BEFORE = TINY.encode("<|im_end|>\n<|im_start|>tool\n", specials=True)


@dataclass
class Ahead:
    """Notes what is to be processed ahead of time, says that so much of it is, and stays until the tools are done."""

    worth: bool = True
    done: int = 0
    asked: list[tuple[list[int], list[int], str]] = field(default_factory=list[tuple[list[int], list[int], str]])

    def pays(self, ids: int) -> bool:
        return self.worth

    async def run(self, held: Sequence[int], ahead: Sequence[int], owner: str, over: anyio.Event, told: Told) -> None:
        self.asked.append((list(held), list(ahead), owner))
        if self.done:
            told(self.done, 0.1)
        await over.wait()


@dataclass
class Fill:
    """Says that all up to the first result is processed, and keeps the ids that it was given."""

    held: list[int] = field(default_factory=list[int])

    async def __call__(self, slot: int, ids: Sequence[int]) -> Filled:
        self.held[:] = ids
        return Filled(len(BEFORE), 0.25)


@pytest.fixture
def slow_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that are over when everybody else waits."""

    async def call(self: CallRunner, call: Any, *_: Any, **__: Any) -> Answered:
        await anyio.wait_all_tasks_blocked()
        return Answered(call, "It is 42.", 0.0)

    monkeypatch.setattr(CallRunner, "call", call)


@pytest.fixture
def prefilled(monkeypatch: pytest.MonkeyPatch) -> Callable[[], anyio.Event]:
    """It pays always; gives what is set when the next piece is through."""
    events: list[anyio.Event] = []
    count = Metrics.ids_prefilled

    def counted(self: Metrics, n: int) -> None:
        count(self, n)
        while events:
            events.pop().set()

    def following() -> anyio.Event:
        events.append(anyio.Event())
        return events[-1]

    monkeypatch.setattr(Metrics, "ids_prefilled", counted)
    monkeypatch.setattr(Prefill, "pays", lambda self, ids: True)
    return following


async def asked_ahead(stage: Any, ahead: Any, *, tools: Sequence[ToolSpec] = (), **options: Any) -> Any:
    stage.route._ready = replace(stage.route.ready(), prefill=ahead)
    conversation = await stage.agent.open(QUESTION, client_tools=tools)
    with anyio.fail_after(20):
        await stage.agent.answer(conversation, AnswerOptions(**options), stage.listen)
    return getattr(ahead, "asked", None)


@pytest.mark.parametrize("written", [SAY, f"{SAY}\n{SAY}"], ids=["one call", "two calls"])
@pytest.mark.usefixtures("slow_tools")
async def test_all_up_to_the_first_result_is_processed_behind_the_turn(open_stage, written):
    async with open_stage(written, "Done.") as stage:
        ((held, ahead, owner),) = await asked_ahead(stage, Ahead())

    second = list(stage.engine.asked[1].prompt)
    assert ahead == BEFORE
    assert second[: len(held) + len(ahead)] == held + ahead
    assert held == [*stage.engine.asked[0].prompt, *TINY.encode(written, specials=True)]
    assert owner == ANYBODY.name


@pytest.mark.usefixtures("slow_tools")
async def test_what_was_processed_ahead_of_time_counts_as_processed_once(open_stage, prefilled):
    fill = Fill()

    async def events(prompt, most):
        async for event in scripted(prompt, most):
            if isinstance(event, Generated):
                yield event
            else:
                timings = replace(event.timings, cache_n=len(fill.held), prompt_n=len(prompt) - len(fill.held))
                yield replace(event, timings=timings)

    async with open_stage(SAY, "Done.") as stage:
        scripted, stage.engine._events = stage.engine._events, events
        await asked_ahead(stage, Prefill(stage.route.ready().slots, fill, Rates()))

    first, second = stage.of(GenerationFinished)
    (finished,) = stage.of(Finished)
    assert (first.prefilled, first.prefilled_seconds) == (0, 0.0)
    assert (second.prefilled, second.prefilled_seconds) == (len(BEFORE), 0.25)
    assert len(fill.held) == second.held + len(BEFORE)
    assert second.timings.cache_n == second.held
    assert second.timings.prompt_n == second.scaffold + second.reinjected_shim
    assert finished.cached_ids == second.held
    assert f"codec_prefilled_ids_total {len(BEFORE)}.0" in stage.metrics.render().decode()


@pytest.mark.usefixtures("slow_tools")
async def test_what_was_processed_ahead_of_time_and_lost_is_not_told(open_stage):
    # The scripted engine finds nothing again.
    async with open_stage(SAY, "Done.") as stage:
        await asked_ahead(stage, Ahead(done=3))

    _, second = stage.of(GenerationFinished)
    assert (second.prefilled, second.prefilled_seconds) == (0, 0.0)
    assert (second.timings.cache_n, second.timings.prompt_n) == (0, second.prompt)


@pytest.mark.parametrize("found", [0, 1])
@pytest.mark.usefixtures("slow_tools")
async def test_of_what_was_processed_ahead_of_time_as_much_is_told_as_is_found_again(open_stage, prefilled, found):
    fill = Fill()

    async def events(prompt, most):
        async for event in scripted(prompt, most):
            if isinstance(event, GenerationEnd):
                # The last id that was generated before is never found.
                cached = max(len(fill.held) - len(BEFORE) - 1 + found, 0)
                yield replace(event, timings=replace(event.timings, cache_n=cached, prompt_n=len(prompt) - cached))
            else:
                yield event

    async with open_stage(SAY, "Done.") as stage:
        scripted, stage.engine._events = stage.engine._events, events
        await asked_ahead(stage, Prefill(stage.route.ready().slots, fill, Rates()))

    _, second = stage.of(GenerationFinished)
    assert second.prefilled == found < len(BEFORE)


@pytest.mark.parametrize(
    ("written", "options", "limits"),
    [
        ("Hello.", {}, {}),
        (SAY + OWN, {}, {}),
        (SAY, {}, {"turns": 1}),
        (SAY, {"max_tokens": len(TINY.encode(SAY, specials=True))}, {}),
    ],
    ids=["no call", "a client's call", "the last turn", "cut off"],
)
@pytest.mark.usefixtures("slow_tools")
async def test_nothing_is_processed_where_no_result_will_follow(open_stage, written, options, limits):
    async with open_stage(written, "Done.", "Done.", **limits) as stage:
        assert await asked_ahead(stage, Ahead(), tools=[PAINT], **options) == []


@pytest.mark.usefixtures("slow_tools")
async def test_nothing_is_processed_where_it_does_not_pay(open_stage):
    async with open_stage(SAY, "Done.") as stage:
        assert await asked_ahead(stage, Ahead(worth=False)) == []


@pytest.mark.usefixtures("slow_tools")
async def test_nothing_is_processed_behind_ids_that_were_guessed(open_stage):
    async def guessed(prompt, most):
        async for event in scripted(prompt, most):
            yield replace(event, guessed=True) if isinstance(event, Generated) else event

    async with open_stage(SAY, "Done.") as stage:
        scripted, stage.engine._events = stage.engine._events, guessed
        assert await asked_ahead(stage, Ahead()) == []


@pytest.mark.usefixtures("slow_tools")
async def test_nothing_is_processed_where_the_template_reads_the_result(open_stage, monkeypatch):
    async def reads():
        return True

    async with open_stage(SAY, "Done.") as stage:
        monkeypatch.setattr(stage.route.ready().template, "reads_results", reads)
        assert await asked_ahead(stage, Ahead()) == []


@pytest.mark.usefixtures("slow_tools")
async def test_nothing_is_processed_where_the_engine_will_go_back_to_the_question(open_stage, monkeypatch):
    hints = Conversation.hints

    async def returning(conversation: Conversation) -> Any:
        return replace(await hints(conversation), returns=True)

    monkeypatch.setattr(Conversation, "hints", returning)
    async with open_stage(SAY, "Done.") as stage:
        assert await asked_ahead(stage, Ahead()) == []


@pytest.mark.parametrize(("beyond", "ahead"), [(0, 0), (1, 1)])
@pytest.mark.usefixtures("slow_tools")
async def test_nothing_is_processed_where_no_result_would_fit_behind_it(open_stage, beyond, ahead):
    async with open_stage(SAY, "Done.") as stage:
        conversation = await stage.agent.open(QUESTION)
        taken = len(conversation.ids) + len(TINY.encode(SAY, specials=True)) + ANSWER_ROOM
        after = len(TINY.encode("<|im_end|>\n<|im_start|>assistant\n", specials=True))
    async with open_stage(SAY, "Done.", context=taken + len(BEFORE) + after + beyond) as stage:
        assert len(await asked_ahead(stage, Ahead())) == ahead


@pytest.mark.usefixtures("slow_tools")
async def test_an_engine_that_does_not_render_is_told_of_when_results_are_spliced(open_stage, monkeypatch):
    async def breaks(*_: Any):
        raise EngineUnavailable("gone")

    async with open_stage(SAY, "Done.") as stage:
        monkeypatch.setattr(stage.route.ready().template, "scaffold", breaks)
        with pytest.raises(EngineUnavailable):
            await asked_ahead(stage, Ahead())


async def test_a_result_that_is_there_already_waits_for_nothing(open_stage, monkeypatch):
    over = anyio.Event()

    async def call(self: CallRunner, call: Any, *_: Any, **__: Any) -> Answered:
        over.set()
        return Answered(call, "It is 42.", 0.0)

    async def events(prompt, most):
        async for event in scripted(prompt, most):
            if not isinstance(event, Generated) and not over.is_set():
                await over.wait()
                await anyio.wait_all_tasks_blocked()
            yield event

    monkeypatch.setattr(CallRunner, "call", call)
    async with open_stage(SAY, "Done.") as stage:
        scripted, stage.engine._events = stage.engine._events, events
        assert await asked_ahead(stage, Ahead()) == []


class Real:
    """The embedded engine, and a tool that says the next line that is written into `gate`."""

    def __init__(self, services: Services, gate: Path) -> None:
        self.services = services
        self._gate = gate
        self.events: list[Any] = []

    async def answer(self, words: str = "What is it?") -> str:
        self.events = []

        async def listen(event: Any) -> None:
            self.events.append(event)

        agent, choice = self.services.agent, ToolChoice.named("say")
        conversation = await agent.open([{"role": "user", "content": words}], choice=choice)
        await agent.answer(conversation, AnswerOptions(choice, 60, Sampling(0, seed=1)), listen)
        return "".join(event.text for event in self.events if isinstance(event, Content))

    async def say(self, text: str = "It is 42.") -> None:
        await anyio.to_thread.run_sync(self._gate.write_text, text + "\n", abandon_on_cancel=True)

    def turns(self) -> list[GenerationFinished]:
        return [event for event in self.events if isinstance(event, GenerationFinished)]

    def count(self, name: str) -> float:
        lines = self.services.metrics.render().decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name + " "))


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


@asynccontextmanager
async def real(gate: Path, *, slots: int = 1, **settings: Any) -> AsyncGenerator[Real]:
    upstream = UpstreamConfig(name="up", command=sys.executable, args=(str(WAITS),), env={"GATE": str(gate)})
    engine = EngineConfig(kind="embedded", context=1024 * slots, slots=slots, threads=1, **settings)
    config = GatewayConfig((upstream,), engine=engine, tokens=TokensConfig(), limits=LimitsConfig(turns=2))
    with anyio.fail_after(120):
        async with open_services(config) as services:
            yield Real(services, gate)


@pytest.mark.engine
async def test_request_of_the_result_processes_the_result_and_what_stands_behind_it(gate, prefilled):
    async with real(gate) as at:
        done = prefilled()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.answer)
            await done.wait()
            await at.say()
        first, second = at.turns()
        processed = at.count("codec_generation_prompt_ids_total") - first.timings.prompt_n
        reused = at.count("codec_generation_reused_ids_total") - first.timings.cache_n
        ahead = at.count("codec_prefilled_ids_total")

    # The template's ids before the result; it has as many more behind it.
    assert ahead == second.prefilled == 5
    assert second.prefilled_seconds > 0
    assert processed == second.scaffold - ahead + second.reinjected_shim
    assert reused == second.held + ahead
    # What is told: each id was processed once.
    assert second.timings.cache_n == second.held == first.prompt + first.generated
    assert second.timings.prompt_n == second.scaffold + second.reinjected_shim


@pytest.mark.engine
async def test_the_answer_is_the_same_without(gate, prefilled, monkeypatch):
    said = []
    for setting in ("auto", "off"):
        async with real(gate, prefill=setting) as at:
            assert (at.services.engines.ready().prefill is None) is (setting == "off")

            async def answer(at=at):
                said.append((await at.answer(), [turn.prefilled for turn in at.turns()]))

            done = prefilled()
            if setting == "off":
                done.set()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(answer)
                await done.wait()
                await at.say()
    (with_it, ahead), (without, never) = said
    assert with_it == without != ""
    assert (ahead, never) == ([0, 5], [0, 0])


@pytest.mark.engine
async def test_of_two_conversations_each_finds_its_own(gate, prefilled):
    async with real(gate, slots=2) as at:
        both = [Real(at.services, gate), Real(at.services, gate)]
        async with anyio.create_task_group() as tasks:
            for number, each in enumerate(both):
                done = prefilled()
                tasks.start_soon(each.answer, f"What is it, {number}?")
                await done.wait()
            await at.say()
            await at.say()
        for each in both:
            _, second = each.turns()
            assert second.prefilled == 5
            assert second.timings.cache_n == second.held


@pytest.mark.engine
async def test_client_that_leaves_in_a_piece_frees_the_only_slot(gate, prefilled, monkeypatch):
    begun, fill = anyio.Event(), LlamaCpp.fill_slot

    async def noted(self: LlamaCpp, slot: int, ids: Sequence[int]) -> Filled:
        begun.set()
        return await fill(self, slot, ids)

    monkeypatch.setattr(LlamaCpp, "fill_slot", noted)
    async with real(gate) as at:
        # The engine's start fills a slot too.
        begun = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.answer)
            await begun.wait()
            tasks.cancel_scope.cancel()
        # The tool does not hear of it.
        await at.say()
        done = prefilled()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.answer)
            await done.wait()
            await at.say()
        _, second = at.turns()
        assert second.timings.cache_n == second.held
        assert at.services.engines.ready().slots.is_idle


@pytest.mark.engine
async def test_engine_that_dies_in_a_piece_is_told_with_the_result_and_started_again(gate, prefilled, monkeypatch):
    started, died, again = anyio.Event(), anyio.Event(), anyio.Event()
    fill, engine_up = LlamaCpp.fill_slot, Metrics.engine_up

    async def dying(self: LlamaCpp, slot: int, ids: Sequence[int]) -> Filled:
        if started.is_set() and not died.is_set():
            os.kill(at.services.routes["engine"].child_pid or 0, signal.SIGKILL)
            died.set()
        return await fill(self, slot, ids)

    def noted(self: Metrics, up: bool) -> None:
        engine_up(self, up)
        if up and died.is_set():
            again.set()

    monkeypatch.setattr(LlamaCpp, "fill_slot", dying)
    monkeypatch.setattr(Metrics, "engine_up", noted)
    async with real(gate) as at:
        started.set()
        before = at.services.engines.ready()
        failed: list[EngineUnavailable] = []

        async def answer() -> None:
            try:
                await at.answer()
            except EngineUnavailable as error:
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer)
            await died.wait()
            await at.say()
        assert len(failed) == 1
        assert before.slots.is_idle
        await again.wait()
        done = prefilled()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.answer)
            await done.wait()
            await at.say()
        assert at.turns()[1].prefilled == 5
