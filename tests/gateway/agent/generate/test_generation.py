"""One generation: what the engine is asked for, and what is counted and kept of what it reports."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.agent import AnswerOptions
from gateway.agent.events import Finished, GenerationFinished
from gateway.agent.generate.generation import Generation
from gateway.agent.generate.generation_options import GenerationOptions
from gateway.engine.interface import Generated, GenerationEnd, Sampling, Timings
from gateway.errors import EngineRefused, GrammarRefused
from gateway.proxy.caller import Principal
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
QUESTION = [{"role": "user", "content": "What is it?"}]
SAY = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'


async def answered(stage: Any, messages: Any = QUESTION, name: str = "ada", **options: Any) -> Any:
    conversation = await stage.agent.open(messages, principal=Principal(name))
    finished = await stage.agent.answer(conversation, AnswerOptions(**options), stage.listen)
    return conversation, finished


def figure(stage: Any, name: str) -> float:
    (line,) = [line for line in stage.metrics.render().decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


def judgements(stage: Any) -> float:
    lines = stage.metrics.render().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("codec_guessed_turns_total{"))


def reporting(timings: Timings, **more: Any) -> Any:
    async def events(prompt: list[int], most: int):
        yield Generated((TINY.encode("a")[0],))
        yield GenerationEnd("length", None, timings, **more)

    return events


async def test_engine_is_asked_for_what_the_client_wants_and_nothing_else(open_stage):
    sampling = Sampling(temperature=0.5, logit_bias=((7, 1.0),))
    async with open_stage("One.") as stage:
        conversation, _ = await answered(stage, sampling=sampling, max_tokens=30)
        prompt = await stage.agent.open(QUESTION)

    (asked,) = stage.engine.asked
    assert (list(asked.prompt), asked.max_tokens, asked.sampling) == (prompt.ids, 30, sampling)
    assert (asked.grammar, tuple(asked.triggers), asked.logprobs, asked.top_logprobs) == (None, (), False, 0)
    assert (asked.session, asked.retention, asked.trace, asked.gather) == (b"", None, {}, False)
    assert conversation.ids == [*prompt.ids, *TINY.encode("One.")]


async def test_model_that_has_to_answer_in_words_is_kept_from_beginning_a_call(open_stage):
    bias = ((7, 1.0),)
    async with open_stage(SAY, SAY, SAY, "Done.") as stage:
        await answered(stage, sampling=Sampling(logit_bias=bias))

    begins = (TINY.special_tokens["<tool_call>"], -100.0)
    assert [asked.sampling.logit_bias for asked in stage.engine.asked] == [bias] * 3 + [(*bias, begins)]


async def test_engine_with_sessions_is_told_whose_conversation_it_is(open_stage):
    async with open_stage("One.", "Two.", "Three.") as stage:
        ready = stage.route.ready()
        stage.route._ready = replace(ready, facts=replace(ready.facts, can=replace(ready.facts.can, sessions=True)))
        for name in ("ada", "ada", "bob"):
            await answered(stage, name=name)

    one, two, three = [asked.session for asked in stage.engine.asked]
    assert one == two != three
    assert b"" not in (one, three)


@pytest.mark.parametrize("wanted", [True, False])
async def test_probabilities_are_asked_for_where_a_record_keeps_them(open_stage, wanted):
    async with open_stage("One.") as stage:
        stage.agent.recall.watch(lambda: True)
        conversation = await stage.agent.open(QUESTION)
        conversation.observer.logprobs = wanted
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    (asked,) = stage.engine.asked
    assert (asked.logprobs, asked.top_logprobs) == (wanted, 0)


async def test_what_a_generation_took_is_told_and_counted(open_stage):
    async with open_stage("") as stage:
        prompt = len((await stage.agent.open(QUESTION)).ids)
        timings = Timings(prompt - 9, 9, 1, 0.5, 0.25)
        stage.engine._events = reporting(timings, repaired=3, ambiguous=2, missed=1, padded=4)
        _, finished = await answered(stage)

    (stats,) = stage.of(GenerationFinished)
    assert stats.ttft > 0
    assert (stats.prompt, stats.generated, stats.held, stats.guessed) == (prompt, 1, 0, False)
    assert finished == Finished("length", prompt, 0, 1)
    assert figure(stage, "codec_generations_total") == 1
    assert figure(stage, "codec_generation_prompt_ids_total") == prompt - 9
    assert figure(stage, "codec_generation_reused_ids_total") == 9
    assert figure(stage, "codec_generation_ids_total") == 1
    assert figure(stage, "codec_padded_ids_total") == 4
    results = ("repaired", "ambiguous", "missed")
    assert [figure(stage, f'codec_repaired_ids_total{{result="{each}"}}') for each in results] == [3, 2, 1]
    assert figure(stage, "codec_generation_first_id_seconds_sum") == pytest.approx(stats.ttft)
    assert stats.ttft <= figure(stage, "codec_generation_seconds_sum")
    # Nothing was guessed that the cache could judge.
    assert judgements(stage) == 0


async def test_no_more_is_told_as_cached_than_the_prompt_has(open_stage):
    async with open_stage("") as stage:
        stage.engine._events = reporting(Timings(5, 10_000, 1, 0.5, 0.25))
        await answered(stage)
        conversation, finished = await answered(stage)

    prompt = len(conversation.ids) - 1
    assert stage.of(GenerationFinished)[1].timings == Timings(0, prompt, 1, 0.5, 0.25)
    assert finished == Finished("length", prompt, prompt, 1)


@pytest.mark.parametrize(
    "told",
    [GenerationEnd.unreported(1), GenerationEnd("length", None, Timings(9, 0, 1, 0.5, 0.25), tells_cache=False)],
    ids=["nothing of the end", "nothing of the cache"],
)
async def test_generation_whose_figures_the_engine_did_not_report_has_none(open_stage, told):
    async def end(prompt: list[int], most: int):
        yield Generated((TINY.encode("a")[0],))
        yield told

    async with open_stage("") as stage:
        stage.engine._events = end
        _, finished = await answered(stage)

    (stats,) = stage.of(GenerationFinished)
    assert stats.timings is None
    assert (finished.cached_ids, finished.reason) == (0, "length")
    assert figure(stage, "codec_generations_total") == 1


async def test_generation_that_a_stop_string_ended_is_not_counted(open_stage):
    async with open_stage("One STOP") as stage:
        await answered(stage, stops=("STOP",))

    assert figure(stage, "codec_generations_total") == 0
    assert "".join(event.text for event in stage.of(Content)) == "One "


async def test_splices_are_told_of_one_generation_alone(open_stage):
    async with open_stage(SAY, SAY.replace("{}", '{"a": 1}'), "Done.") as stage:
        await answered(stage)

    first, second, third = stage.of(GenerationFinished)
    assert (first.reinjected_shim, second.reinjected_shim, third.reinjected_shim) == (0, 9, 9)
    assert first.scaffold == 0 < second.scaffold == third.scaffold
    assert (second.prefilled, second.prefilled_seconds, second.moved) == (0, 0.0, 0)


async def test_prompt_that_the_engine_refused_tells_nothing_of_the_cache_when_it_is_asked_again(open_stage):
    async def refuse(prompt: list[int], most: int):
        raise EngineRefused("no", 400)
        yield

    async with open_stage("") as stage:
        stage.engine._events = refuse
        with pytest.raises(EngineRefused):
            await answered(stage, name="eve")
        prompt = len((await stage.agent.open(QUESTION)).ids)
        stage.engine._events = reporting(Timings(1, prompt - 1, 1, 0.0, 0.0))
        cached = [(await answered(stage, name="eve"))[1].cached_ids for _ in range(2)]

    assert cached == [0, prompt - 1]


async def test_engine_that_refuses_a_grammar_that_nobody_asked_for_is_an_error(open_stage):
    async def refuse(prompt: list[int], most: int):
        raise GrammarRefused("no", 400)
        yield

    async with open_stage("") as stage:
        stage.engine._events = refuse
        with pytest.raises(GrammarRefused):
            await answered(stage)

    assert len(stage.engine.asked) == 1


async def test_nothing_follows_a_generation_that_has_to_be_words(open_stage):
    async with open_stage(SAY, SAY, SAY, "Done.") as stage:
        ready = stage.route.ready()
        stage.route._ready = replace(ready, facts=replace(ready.facts, can=replace(ready.facts.can, retention=True)))
        await answered(stage)

    told = [asked.retention for asked in stage.engine.asked]
    assert [each.continues for each in told] == [True, True, True, False]
    assert len({each.conversation for each in told}) == 1


async def test_identity_of_a_run_is_told_while_it_runs(open_stage):
    async with open_stage("One.") as stage:
        conversation = await stage.agent.open(QUESTION)
        options = GenerationOptions(10, Sampling())
        generation = Generation(conversation, options, stage.listen, stage.metrics)
        assert (generation.conversation, generation.options) == (conversation, options)
        assert (generation.generated, generation.ttft) == (0, None)
        result = await generation.run({"traceparent": "00-1"})

    assert generation.generated == 4
    assert generation.ttft == result.stats.ttft > 0
    assert (result.stopped, result.calls, result.started, result.stop, result.in_slot) == (True, (), 0, None, 0)
    assert stage.engine.asked[0].trace == {"traceparent": "00-1"}
    assert TINY.decode(conversation.ids).endswith("One.")
