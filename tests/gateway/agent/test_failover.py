"""An engine is lost in the middle of an answer, and another of the pool goes on with the ids that are there."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from gateway.agent import Agent, AnswerOptions, Completer, CompletionOptions
from gateway.agent.events import GenerationFinished, IdsGenerated, IdsSpliced
from gateway.agent.generate.generation_options import ToolChoice
from gateway.config import EngineConfig, LimitsConfig
from gateway.engine.interface import EngineFacts, Generated, GenerateRequest, GenerationEnd, GenerationEvent, Timings
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import (
    EngineBusy,
    EngineError,
    EngineLost,
    EngineRefused,
    EngineUnavailable,
    GrammarRefused,
    MapDiffers,
)
from gateway.observe.metrics import Metrics
from gateway.observe.tracing import Tracing
from gateway.toolcalls.formats.registry import choose_format
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
END = TINY.special_tokens["<|im_end|>"]
ASK = [{"role": "user", "content": "Why?"}]
STORY = "one two three four five six seven"
SAY = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'


class Script:
    """What the model of all engines writes, whatever it is asked: the text behind the prompt goes on."""

    def __init__(self, *texts: str) -> None:
        self.turns = [[*TINY.encode(text, specials=True), END] for text in texts]
        self.prompt = 0
        """Ids of the first prompt of the turn that is being written."""

    def ids_behind(self, prompt: list[int]) -> list[int]:
        """What is still to come of the turn, given a prompt that may hold its beginning."""
        turn = self.turns[0]
        written = len(prompt) - self.prompt
        assert prompt[self.prompt :] == turn[:written], "an id was lost or doubled"
        return turn[written:]


class Lossy:
    """An engine that is lost behind so many ids, as often as is said."""

    def __init__(self, script: Script, name: str, *losses: int, error: EngineError | None = None) -> None:
        self.script = script
        self.name = name
        self.losses = list(losses)
        self.error = error or EngineUnavailable("the engine broke off")
        self.asked: list[GenerateRequest] = []
        self.templates_fail = 0
        self.takes_lazy = True
        self.guesses = False
        self.hangs: anyio.Event | None = None

    async def apply_template(self, messages: Any, tools: Any = ()) -> str:
        if self.templates_fail:
            self.templates_fail -= 1
            raise EngineUnavailable("the engine is away")
        turns = [f"<|im_start|>{m['role']}\n{m.get('content') or ''}<|im_end|>\n" for m in messages]
        return "".join(turns) + "<|im_start|>assistant\n"

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        self.asked.append(replace(request, prompt=list(request.prompt)))
        if request.triggers and not self.takes_lazy:
            raise GrammarRefused("the engine refuses the grammar: Invalid structural tag specification.", 400)
        yield self._events(list(request.prompt), request.max_tokens)

    async def _events(self, prompt: list[int], most: int) -> AsyncIterator[GenerationEvent]:
        ids = self.script.ids_behind(prompt)
        lost = self.losses.pop(0) if self.losses else None
        for number, token_id in enumerate(ids[:most]):
            if number == lost:
                if self.hangs is not None:
                    self.hangs.set()
                    await anyio.sleep_forever()
                raise self.error
            yield Generated((token_id,), logprobs=(-float(token_id),), guessed=self.guesses)
        if lost is not None and lost >= min(len(ids), most):
            raise self.error
        if len(ids) <= most:
            self.script.turns.pop(0)
        timings = Timings(len(prompt), 0, min(len(ids), most), 0, 0)
        stopped = len(ids) <= most
        yield GenerationEnd("stop" if stopped else "length", END if stopped else None, timings)


class LossyRoute:
    """The route to one."""

    def __init__(self, engine: Lossy, context: int = 4000, *, hold_calls: bool = False, model: str = "m") -> None:
        given: Any = engine
        facts = EngineFacts(model, None, "", False, len(TINY), context, 2, ())
        template = ChatTemplate(given, facts, TINY)
        tool_format = choose_format("", supports_tools=False)
        self.up: ReadyEngine | None = ReadyEngine(
            *(given, facts, TINY, template, SlotTable(2), tool_format),
            name=engine.name,
            settings=EngineConfig(hold_calls=hold_calls),
        )
        self.losses = 0

    def ready(self) -> ReadyEngine:
        if self.up is None:
            raise EngineUnavailable("it is away")
        return self.up

    def report_loss(self) -> None:
        self.losses += 1


class Stage:
    def __init__(self, runner: Any, engines: dict[str, Lossy], tracing: Tracing | None = None, **route: Any) -> None:
        self.engines = engines
        self.script = next(iter(engines.values())).script
        self.routes = {name: LossyRoute(engine, **route) for name, engine in engines.items()}
        self.pool = EnginePool(self.routes)
        self.metrics = Metrics()
        self.agent = Agent(self.pool, runner, LimitsConfig(), self.metrics, tracing=tracing)
        self.events: list[Any] = []
        self.hear: Callable[[Any], Any] | None = None

    async def listen(self, event: Any) -> None:
        self.events.append(event)
        if self.hear is not None:
            await self.hear(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def text(self) -> str:
        return "".join(event.text for event in self.of(Content))

    def ids(self) -> list[int]:
        return [token_id for event in self.of(IdsGenerated) for token_id in event.ids]

    async def answer(self, **options: Any) -> Any:
        conversation = await self.agent.open(ASK, **options.pop("opened", {}))
        self.script.prompt = len(conversation.ids)
        return await self.agent.answer(conversation, AnswerOptions(ids=True, **options), self.listen)


def all_lossy(script: Script, *losses: int, members: int = 2, error: EngineError | None = None) -> dict[str, Lossy]:
    """Whoever is asked first is lost behind the first number of ids, the next behind the second, and so on."""
    shared = list(losses)
    engines = {name: Lossy(script, name, error=error) for name in "abcdef"[:members]}
    for engine in engines.values():
        engine.losses = shared
    return engines


@pytest.fixture
async def staged(open_runner: Any) -> AsyncIterator[Callable[..., Stage]]:
    async with open_runner(LimitsConfig(), "It is 42.", tool_search=False) as (runner, _):
        yield lambda engines, tracing=None, **route: Stage(runner, engines, tracing, **route)


@pytest.mark.parametrize("lost", range(len(TINY.encode(STORY)) + 2))
async def test_an_answer_goes_on_with_the_ids_that_are_there_wherever_it_is_lost(staged: Any, lost: int) -> None:
    stage = staged(all_lossy(Script(STORY), lost))

    finished = await stage.answer()

    whole = TINY.encode(STORY)
    assert stage.ids() == whole
    assert stage.text() == STORY
    (turn,) = stage.of(GenerationFinished)
    assert (finished.reason, finished.completion_ids, turn.generated, turn.moved) == ("stop", len(whole), len(whole), 1)
    asked = [request for engine in stage.engines.values() for request in engine.asked]
    first, second = sorted(asked, key=lambda request: len(request.prompt))
    kept = min(lost, len(whole))
    assert list(second.prompt) == [*first.prompt, *whole[:kept]]
    assert second.max_tokens == first.max_tokens - kept


async def test_an_answer_that_moves_is_one_span_that_names_the_engine_that_finished_it(staged: Any) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    stage = staged(all_lossy(Script(STORY), 3), Tracing(provider))

    await stage.answer()

    (span,) = exporter.get_finished_spans()
    last = max(stage.engines.values(), key=lambda engine: len(engine.asked[0].prompt))
    told = span.attributes or {}
    assert (told["codec.engine"], told["gen_ai.response.finish_reasons"]) == (last.name, ("stop",))
    assert told["gen_ai.usage.output_tokens"] == len(TINY.encode(STORY))
    assert span.status.status_code is StatusCode.UNSET


async def test_a_limit_is_that_of_the_whole_answer_and_nothing_is_asked_for_beyond_it(staged: Any) -> None:
    whole = TINY.encode(STORY)
    for lost in range(5):
        stage = staged(all_lossy(Script(STORY), lost))
        finished = await stage.answer(max_tokens=4)
        assert (stage.ids(), finished.reason, finished.completion_ids) == (whole[:4], "length", 4)
        asked = [request.max_tokens for engine in stage.engines.values() for request in engine.asked]
        # Behind the last id there is nothing left to ask another for.
        assert sorted(asked) == ([4] if lost == 4 else sorted([4, 4 - lost]))


async def test_every_id_has_its_probability_once(staged: Any) -> None:
    stage = staged(all_lossy(Script(STORY), 3))

    await stage.answer(logprobs=0)

    told = [token for event in stage.events if hasattr(event, "tokens") for token in event.tokens]
    whole = TINY.encode(STORY)
    assert [token.token_id for token in told if token.token_id != END] == whole
    assert all(token.logprob == -float(token.token_id) for token in told)


async def test_an_end_that_was_sampled_and_not_told_is_sampled_again(staged: Any) -> None:
    # Lost behind the end-of-turn id, before the engine's account.
    stage = staged(all_lossy(Script(STORY), len(TINY.encode(STORY)) + 1))

    finished = await stage.answer(logprobs=0)

    assert (stage.text(), finished.reason) == (STORY, "stop")


async def test_calls_and_their_results_stay_what_they_are(staged: Any) -> None:
    whole = TINY.encode(SAY, specials=True)
    for lost in (0, 1, len(whole) // 2, len(whole) - 1, len(whole)):
        script = Script(SAY, "Done.")
        stage = staged(all_lossy(script, lost))

        async def hear(event: Any, script: Script = script, stage: Stage = stage) -> None:
            if isinstance(event, IdsSpliced):
                script.prompt += len(whole) + sum(len(part.ids) for part in event.parts)

        stage.hear = hear
        finished = await stage.answer()
        assert (stage.ids(), finished.reason) == ([*whole, *TINY.encode("Done.")], "stop")
        assert len(stage.of(IdsSpliced)) == 1


async def test_an_engine_that_is_lost_while_a_tool_works_is_left_before_its_results_are_spliced(staged: Any) -> None:
    stage = staged({name: Lossy(Script(), name) for name in "ab"})
    script = Script(SAY, "Done.")
    for engine in stage.engines.values():
        engine.script = script
    stage.script = script
    whole = TINY.encode(SAY, specials=True)

    async def hear(event: Any) -> None:
        if isinstance(event, GenerationFinished) and len(stage.of(GenerationFinished)) == 1:
            (busy,) = [engine for engine in stage.engines.values() if engine.asked]
            busy.templates_fail = 100
        if isinstance(event, IdsSpliced):
            script.prompt += len(whole) + sum(len(part.ids) for part in event.parts)

    stage.hear = hear
    finished = await stage.answer()

    assert (finished.reason, stage.text()[-5:]) == ("stop", "Done.")
    assert all(engine.asked for engine in stage.engines.values())


async def test_an_engine_that_hangs_while_ids_are_processed_ahead_of_time_holds_nothing_up(staged: Any) -> None:
    script = Script(SAY, "Done.")
    stage = staged({name: Lossy(script, name) for name in "ab"})
    whole = TINY.encode(SAY, specials=True)

    class Ahead:
        """It processes nothing, and is found to be lost."""

        def __init__(self, name: str) -> None:
            self.name = name

        def pays(self, ids: int) -> bool:
            return True

        async def run(self, *_: Any) -> None:
            route = stage.routes[self.name]
            lost, route.up = route.up, None
            lost.life.end()
            await anyio.sleep_forever()

    for name, route in stage.routes.items():
        ahead: Any = Ahead(name)
        route.up = replace(route.ready(), prefill=ahead)

    async def hear(event: Any) -> None:
        if isinstance(event, IdsSpliced):
            script.prompt += len(whole) + sum(len(part.ids) for part in event.parts)

    stage.hear = hear
    with anyio.fail_after(30):
        finished = await stage.answer()

    assert (finished.reason, stage.ids()) == ("stop", [*whole, *TINY.encode("Done.")])
    assert all(engine.asked for engine in stage.engines.values())


@pytest.mark.parametrize("mode", ["required", "lazy"])
async def test_where_a_grammar_holds_the_answer_ends_by_its_name_and_what_came_stands(staged: Any, mode: str) -> None:
    stage = staged(all_lossy(Script(SAY), 4), hold_calls=mode == "lazy")
    options = {"choice": ToolChoice("required")} if mode == "required" else {}
    if mode == "lazy" and not _triggers(stage):
        pytest.skip("this map's calls begin with no token of their own")

    with pytest.raises(EngineLost, match="grammar"):
        await stage.answer(**options)

    assert stage.ids() == TINY.encode(SAY, specials=True)[:4]
    assert sum(len(engine.asked) for engine in stage.engines.values()) == 1


@pytest.mark.parametrize(("lost", "judged"), [(None, 1), (0, 0), (2, 0)])
async def test_guessed_ids_are_not_judged_by_the_cache_of_an_engine_that_did_not_write_them(
    staged: Any, lost: int | None, judged: int
) -> None:
    whole = TINY.encode(SAY, specials=True)
    script = Script(SAY, "Done.")
    stage = staged(all_lossy(script))

    async def hear(event: Any) -> None:
        if isinstance(event, IdsSpliced):
            script.prompt += len(whole) + sum(len(part.ids) for part in event.parts)
            for engine in stage.engines.values():
                engine.guesses, engine.losses = False, [] if lost is None else losses

    losses = [lost]
    for engine in stage.engines.values():
        engine.guesses = True
    stage.hear = hear
    await stage.answer()

    counted = [line for line in stage.metrics.render().decode().splitlines() if "codec_guessed_turns_total{" in line]
    assert sum(float(line.split()[-1]) for line in counted) == judged


async def test_where_the_engine_took_no_grammar_of_calls_another_goes_on_in_the_middle_of_one(staged: Any) -> None:
    whole = TINY.encode(SAY, specials=True)
    script = Script(SAY, "Done.")
    stage = staged(all_lossy(script, 4), hold_calls=True)
    for engine in stage.engines.values():
        engine.takes_lazy = False

    async def hear(event: Any) -> None:
        if isinstance(event, IdsSpliced):
            script.prompt += len(whole) + sum(len(part.ids) for part in event.parts)

    stage.hear = hear
    finished = await stage.answer()

    assert (stage.ids(), finished.reason) == ([*whole, *TINY.encode("Done.")], "stop")


def _triggers(stage: Stage) -> bool:
    ready = stage.pool.ready()
    from gateway.toolcalls.formats.format import call_triggers

    return bool(call_triggers(ready.tool_format.format, ready.token_map))


async def test_before_the_first_id_a_held_answer_moves_too(staged: Any) -> None:
    stage = staged(all_lossy(Script(SAY), 0))
    stage.agent._limits = LimitsConfig(turns=1)

    finished = await stage.answer(choice=ToolChoice("required"))

    assert stage.ids() == TINY.encode(SAY, specials=True)
    assert finished.completion_ids == len(stage.ids())


async def test_a_model_that_may_be_held_and_has_not_begun_a_call_goes_on(staged: Any) -> None:
    stage = staged(all_lossy(Script(STORY), 3), hold_calls=True)

    await stage.answer()

    assert stage.text() == STORY


async def test_garbage_is_left_for_another_engine_and_a_refusal_is_not(staged: Any) -> None:
    garbage = EngineRefused("the engine sent a stream message that is not JSON", 502)
    stage = staged(all_lossy(Script(STORY), 2, error=garbage))
    await stage.answer()
    assert stage.text() == STORY

    refusal = EngineRefused("the engine answered 400: no", 400)
    stage = staged(all_lossy(Script(STORY), 2, error=refusal))
    with pytest.raises(EngineRefused, match="400"):
        await stage.answer()
    assert sum(len(engine.asked) for engine in stage.engines.values()) == 1


async def test_where_no_other_is_left_what_was_wrong_with_the_last_is_told_as_its_absence(staged: Any) -> None:
    differs = MapDiffers("other ids", sample="x", map_ids=[1], engine_ids=[2])
    stage = staged(all_lossy(Script(STORY), *[0] * 9, error=differs))

    with pytest.raises(EngineUnavailable, match="no engine is left that can answer: other ids"):
        await stage.answer()


async def test_an_answer_that_every_engine_is_lost_of_does_not_take_them_all(staged: Any) -> None:
    stage = staged(all_lossy(Script(STORY), *[0] * 50, members=6))

    with pytest.raises(EngineUnavailable, match="broke off"):
        await stage.answer()

    assert sum(len(engine.asked) for engine in stage.engines.values()) == 4
    assert sum(route.losses for route in stage.routes.values()) == 4


async def test_without_another_engine_it_ends_as_ever(staged: Any) -> None:
    stage = staged(all_lossy(Script(STORY), 2, members=1))

    with pytest.raises(EngineUnavailable, match="broke off"):
        await stage.answer()

    assert stage.ids() == TINY.encode(STORY)[:2]
    assert stage.routes["a"].losses == 1


async def test_an_engine_of_another_model_or_a_smaller_context_goes_on_with_nothing(staged: Any) -> None:
    for other in ({"model": "else"}, {"context": 100}):
        stage = staged(all_lossy(Script(STORY), 2, 2))
        route = LossyRoute(stage.engines["b"], **other)
        stage.routes["b"].up = route.up
        with pytest.raises(EngineUnavailable, match="broke off"):
            await stage.answer(opened={"model": "m"})
        assert not stage.engines["b"].asked


async def test_one_that_hangs_is_left_when_its_route_closes(staged: Any) -> None:
    stage = staged(all_lossy(Script(STORY), 3))
    hanging = anyio.Event()
    for engine in stage.engines.values():
        engine.hangs = hanging

    async with anyio.create_task_group() as tasks:

        async def close() -> None:
            await hanging.wait()
            (name,) = [name for name, engine in stage.engines.items() if engine.asked]
            lost, stage.routes[name].up = stage.routes[name].up, None
            lost.life.end()

        tasks.start_soon(close)
        await stage.answer()

    assert stage.ids() == TINY.encode(STORY)


async def test_an_engine_that_is_away_is_not_asked_for_a_prompt_either(staged: Any) -> None:
    stage = staged({name: Lossy(Script(), name) for name in "ab"})
    script = Script(STORY)
    for engine in stage.engines.values():
        engine.script, engine.templates_fail = script, 0
    stage.script = script
    stage.engines["a"].templates_fail = 100

    await stage.answer()

    assert stage.text() == STORY


async def test_of_a_full_engine_answers_go_on_and_it_does_not_count_as_lost(staged: Any) -> None:
    stage = staged(all_lossy(Script(STORY), 0, error=EngineBusy("every slot is taken")))

    await stage.answer()

    assert stage.text() == STORY
    assert sum(route.losses for route in stage.routes.values()) == 0


@pytest.mark.parametrize("lost", range(0, 9, 2))
async def test_a_plain_completion_goes_on_as_well(staged: Any, lost: int) -> None:
    stage = staged(all_lossy(Script(STORY), lost))
    completer = Completer(stage.pool, LimitsConfig(), Metrics())
    prompt = completer.open("Say: ")
    stage.script.prompt = len(prompt.ids)

    finished = await completer.answer(prompt, CompletionOptions(ids=True), stage.listen)

    assert (stage.text(), stage.ids(), finished.reason) == (STORY, TINY.encode(STORY), "stop")
    assert stage.of(GenerationFinished)[0].moved == 1


@pytest.mark.parametrize("lost", [4, 5])
@pytest.mark.parametrize("text", ["one <|im_start|>two", "one <|im_start|>"])
async def test_a_control_token_that_was_sampled_and_not_told_is_sampled_again(
    staged: Any, text: str, lost: int
) -> None:
    stage = staged(all_lossy(Script(text), lost))
    completer = Completer(stage.pool, LimitsConfig(), Metrics())
    prompt = completer.open("Say: ")
    stage.script.prompt = len(prompt.ids)

    finished = await completer.answer(prompt, CompletionOptions(ids=True), stage.listen)

    assert (stage.ids(), finished.reason) == (TINY.encode(text, specials=True), "stop")


async def test_a_plain_completion_that_is_lost_behind_its_last_id_asks_no_other_engine(staged: Any) -> None:
    stage = staged(all_lossy(Script(STORY), 4))
    completer = Completer(stage.pool, LimitsConfig(), Metrics())
    prompt = completer.open("Say: ")
    stage.script.prompt = len(prompt.ids)

    finished = await completer.answer(prompt, CompletionOptions(max_tokens=4, ids=True), stage.listen)

    assert (stage.ids(), stage.text()) == (TINY.encode(STORY)[:4], TINY.decode(TINY.encode(STORY)[:4]))
    assert (finished.reason, finished.completion_ids, finished.cached_ids) == ("length", 4, 0)
    assert sum(len(engine.asked) for engine in stage.engines.values()) == 1
    assert stage.of(GenerationFinished)[0].timings is None


@pytest.mark.parametrize("lost", [0, 4])
async def test_a_plain_completion_under_a_form_goes_on_only_from_its_beginning(staged: Any, lost: int) -> None:
    stage = staged(all_lossy(Script(STORY), lost))
    completer = Completer(stage.pool, LimitsConfig(), Metrics())
    prompt = completer.open("Say: ")
    stage.script.prompt = len(prompt.ids)
    asked = completer.answer(prompt, CompletionOptions(ids=True, form=AnswerForm()), stage.listen)

    if lost:
        with pytest.raises(EngineLost, match="grammar"):
            await asked
    else:
        await asked
    assert stage.ids() == TINY.encode(STORY)[: lost or None]


@pytest.mark.parametrize(("ends", "engines"), [(64, 1), (63, 2)], ids=["alike", "other"])
async def test_plain_completions_that_begin_with_the_same_64_ids_are_asked_of_one_engine(
    staged: Any, ends: int, engines: int
) -> None:
    stage = staged(all_lossy(Script(*["x"] * 16)))
    completer = Completer(stage.pool, LimitsConfig(), Metrics())
    for number in range(16):
        prompt = completer.open([7] * ends + [100 + number] * 4)
        stage.script.prompt = len(prompt.ids)
        await completer.answer(prompt, CompletionOptions(ids=True), stage.listen)

    assert len([engine for engine in stage.engines.values() if engine.asked]) == engines


@given(losses=st.lists(st.integers(0, 12), max_size=8))
async def test_however_often_engines_are_lost_no_id_is_lost_or_doubled(losses: list[int]) -> None:
    script = Script(STORY * 3)
    engines = all_lossy(script, *losses, members=6)
    pool = EnginePool({name: LossyRoute(engine) for name, engine in engines.items()})
    completer = Completer(pool, LimitsConfig(), Metrics())
    prompt = completer.open("Say: ")
    script.prompt = len(prompt.ids)
    heard: list[int] = []

    async def listen(event: Any) -> None:
        heard.extend(event.ids if isinstance(event, IdsGenerated) else ())

    try:
        await completer.answer(prompt, CompletionOptions(ids=True), listen)
    except EngineUnavailable:
        whole = False
    else:
        whole = True

    expected = TINY.encode(STORY * 3)
    assert heard == (expected if whole else expected[: len(heard)])
    assert whole or len(losses) >= 4
