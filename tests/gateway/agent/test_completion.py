"""A prompt continued: ids pass on as they come, and no id is read beyond what a stop string may end."""

import time
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.agent import Completer, CompletionOptions
from gateway.agent.events import Finished, GenerationFinished, IdsGenerated
from gateway.config import LimitsConfig
from gateway.engine.interface import Generated, GenerationEnd, Sampling, Timings
from gateway.errors import EngineRefused, EngineUnavailable, GrammarRefused, RequestInvalid
from gateway.observe.tracing import Tracing
from gateway.proxy.caller import Principal
from gateway.toolcalls.formats.structured_output import AnswerForm
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio
TINY = tiny_map()


async def completed(stage: Any, options: CompletionOptions, prompt: str = "Say it: ") -> Any:
    completer = Completer(stage.pool, LimitsConfig(), stage.metrics)
    return await completer.answer(completer.open(prompt), options, stage.listen)


@pytest.mark.parametrize(("stops", "gathered"), [((), True), (("x",), False)])
async def test_ids_may_come_together_only_where_no_stop_string_can_end_them(open_stage, stops, gathered):
    async with open_stage("one two") as stage:
        await completed(stage, CompletionOptions(stops=stops, text=False, ids=True))
        assert [asked.gather for asked in stage.engine.asked] == [gathered]
        assert TINY.decode([i for event in stage.of(IdsGenerated) for i in event.ids]) == "one two"


async def test_no_id_behind_the_one_that_completes_a_stop_string_is_told(open_stage):
    async with open_stage("one STOP two three") as stage:
        finished = await completed(stage, CompletionOptions(stops=("STOP",), text=False, ids=True))
        ids = [i for event in stage.of(IdsGenerated) for i in event.ids]
        assert finished.reason == "stop"
        assert "STOP" in TINY.decode(ids)
        assert "two" not in TINY.decode(ids)
        assert finished.completion_ids == len(ids)


async def test_id_that_the_map_does_not_have_never_reaches_the_engine(open_stage):
    async with open_stage("one") as stage:
        completer = Completer(stage.pool, LimitsConfig(), stage.metrics)
        with pytest.raises(RequestInvalid, match="99999999"):
            completer.open([1, 99_999_999])
        assert stage.engine.asked == []


async def test_prompt_that_the_engine_refused_tells_nothing_of_the_cache_when_it_is_asked_again(open_stage):
    """Else a refused request would be the first half of a question that the second one answers."""

    async def refuse(prompt: list[int], most: int):
        raise EngineRefused("no", 400)
        yield

    async def know(prompt: list[int], most: int):
        yield Generated((5,))
        yield GenerationEnd("length", None, Timings(1, len(prompt) - 1, 1, 0.0, 0.0))

    async with open_stage("") as stage:
        completer = Completer(stage.pool, LimitsConfig(), stage.metrics)
        prompt = completer.open("Somebody else's prompt", Principal("eve"))
        stage.engine._events = refuse
        with pytest.raises(EngineRefused):
            await completer.answer(prompt, CompletionOptions(), stage.listen)
        stage.engine._events = know
        told = [await completer.answer(prompt, CompletionOptions(), stage.listen) for _ in range(2)]

    assert [each.cached_ids for each in told] == [0, len(prompt.ids) - 1]


COLOURS = AnswerForm.of_schema({"enum": ["red", "blue"]}, "guided_choice", bare=True)


async def test_form_of_a_completion_is_held_by_the_engine(open_stage):
    async with open_stage("red") as stage:
        await completed(stage, CompletionOptions(form=COLOURS))
        assert [asked.grammar for asked in stage.engine.asked] == ['root ::= ("red" | "blue")\n']


async def test_form_whose_grammar_the_engine_refuses_is_the_client_s_fault(open_stage):
    async def refuse(prompt: list[int], most: int):
        raise GrammarRefused("no", 400)
        yield

    async with open_stage("") as stage:
        stage.engine._events = refuse
        with pytest.raises(RequestInvalid, match="refuses the grammar"):
            await completed(stage, CompletionOptions(form=COLOURS))


def figure(stage: Any, name: str) -> float:
    (line,) = [line for line in stage.metrics.render().decode().splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


@pytest.mark.parametrize(("text", "ids"), [(True, False), (False, True), (False, False), (True, True)])
async def test_text_and_ids_are_told_where_they_are_asked_for_and_the_numbers_always(open_stage, text, ids):
    async with open_stage("one two") as stage:
        finished = await completed(stage, CompletionOptions(text=text, ids=ids))

    said = TINY.encode("one two")
    assert "".join(event.text for event in stage.of(Content)) == ("one two" if text else "")
    assert [i for event in stage.of(IdsGenerated) for i in event.ids] == (said if ids else [])
    # An id that is held back, as it may be the end of the turn, is no event.
    assert all(event.ids for event in stage.of(IdsGenerated))
    (stats,) = stage.of(GenerationFinished)
    prompt = len(TINY.encode("Say it: "))
    assert (stats.prompt, stats.generated, stats.guessed) == (prompt, len(said), False)
    assert (stats.reinjected_leaf, stats.reinjected_shim, stats.scaffold, stats.held) == (0, 0, 0, 0)
    assert finished == Finished("stop", prompt, 0, len(said)) == stage.events[-1]
    # A completion has neither reasoning nor tools.
    assert (finished.reasoning_ids, finished.stop) == (0, None)
    assert (stats.reasoning, stats.prefilled, stats.prefilled_seconds, stats.moved) == (0, 0, 0.0, 0)


def test_completion_is_told_as_text_unless_something_else_is_asked_for():
    options = CompletionOptions()

    assert (options.max_tokens, options.stops, options.form, options.text, options.ids) == (None, (), None, True, False)


async def test_what_a_completion_took_is_counted_once_it_ended_by_itself(open_stage):
    began = time.perf_counter()
    async with open_stage("one two", "one STOP") as stage:
        for stops in ((), ("STOP",)):
            await completed(stage, CompletionOptions(stops=stops))
        took = time.perf_counter() - began

    (first, _) = stage.of(GenerationFinished)
    assert figure(stage, "codec_generations_total") == 1
    assert figure(stage, "codec_generation_ids_total") == len(TINY.encode("one two"))
    assert 0 < first.ttft <= figure(stage, "codec_generation_seconds_sum") <= took
    assert figure(stage, "codec_generation_first_id_seconds_sum") == pytest.approx(first.ttft)


@pytest.mark.parametrize(
    ("asked", "default", "room", "most"), [(None, 7, 50, 7), (3, 7, 50, 3), (60, 7, 50, 50), (None, 70, 50, 50)]
)
async def test_a_completion_is_as_long_as_asked_for_or_set_and_as_there_is_room(open_stage, asked, default, room, most):
    prompt = "Say it: "
    async with open_stage("one two", context=len(TINY.encode(prompt)) + room) as stage:
        completer = Completer(stage.pool, LimitsConfig(completion_tokens=default), stage.metrics)
        await completer.answer(completer.open(prompt), CompletionOptions(max_tokens=asked), stage.listen)

    assert [request.max_tokens for request in stage.engine.asked] == [most]


async def test_completion_that_its_length_ends_says_so(open_stage):
    async with open_stage("one two three") as stage:
        assert (await completed(stage, CompletionOptions(max_tokens=2))).reason == "length"


async def test_prompt_needs_an_id_and_room_for_one_more(open_stage):
    async with open_stage("", context=5) as stage:
        completer = Completer(stage.pool, LimitsConfig(), stage.metrics)
        # A text that no tokenizer packs into the context is not tokenized to find that out.
        wrong = (
            ("", "got none"),
            ([], "got none"),
            ([1] * 5, "has 5 tokens; .* holds 5"),
            ("a" * 321, "321 characters"),
        )
        for prompt, said in wrong:
            with pytest.raises(RequestInvalid, match=said) as refused:
                completer.open(prompt)
            assert refused.value.param == "prompt"

        assert completer.open([1] * 4).ids == [1] * 4


async def test_text_begins_with_what_the_engine_puts_before_it_once(open_stage):
    async with open_stage("") as stage:
        ready = stage.route.ready()
        start = TINY.special_tokens["<|im_start|>"]
        stage.route._ready = replace(ready, facts=replace(ready.facts, bos=(start,)))
        completer = Completer(stage.pool, LimitsConfig(), stage.metrics)

        assert completer.open("hello").ids == [start, *TINY.encode("hello")]
        assert completer.open("<|im_start|>hello").ids == [start, *TINY.encode("hello")]
        # Ids are the client's own.
        assert completer.open(TINY.encode("hello")).ids == TINY.encode("hello")


async def test_engine_that_breaks_off_is_reported_and_what_came_before_stands(open_stage):
    async with open_stage("one two", breaks=True) as stage:
        with pytest.raises(EngineUnavailable):
            await completed(stage, CompletionOptions())

    assert stage.route.losses == 1
    assert "".join(event.text for event in stage.of(Content)) == "one two"
    assert stage.of(Finished) == []


async def test_what_an_answer_that_a_stop_string_ended_left_behind_is_told_to_who_asked(open_stage):
    async def know(prompt: list[int], most: int):
        yield Generated((5,))
        yield GenerationEnd("length", None, Timings(1, len(prompt) - 1, 1, 0.0, 0.0))

    async with open_stage("STOP") as stage:
        await completed(stage, CompletionOptions(stops=("STOP",)))
        stage.engine._events = know
        finished = await completed(stage, CompletionOptions())

    assert finished.cached_ids == finished.prompt_ids - 1


async def test_ids_that_the_stream_had_lost_are_counted(open_stage):
    async def lose(prompt: list[int], most: int):
        yield Generated((5,), guessed=True)
        yield GenerationEnd("length", None, Timings(1, 0, 1, 0.0, 0.0), repaired=3, ambiguous=2, missed=1)

    async with open_stage("") as stage:
        stage.engine._events = lose
        await completed(stage, CompletionOptions())

    (stats,) = stage.of(GenerationFinished)
    assert stats.guessed
    counted = [
        figure(stage, f'codec_repaired_ids_total{{result="{how}"}}') for how in ("repaired", "ambiguous", "missed")
    ]
    assert counted == [3, 2, 1]


@pytest.mark.parametrize(("stops", "shown"), [((), "one two"), (("<|im_start|>",), "one "), (("two",), "one ")])
async def test_control_token_amid_a_text_is_not_shown_but_can_be_a_stop_string(open_stage, stops, shown):
    async with open_stage("one <|im_start|>two") as stage:
        finished = await completed(stage, CompletionOptions(stops=stops))
        assert "".join(event.text for event in stage.of(Content)) == shown
        assert finished.reason == "stop"


async def test_control_token_at_the_very_end_of_the_room_is_the_models(open_stage):
    wrote = TINY.encode("one <|im_start|>", specials=True)
    async with open_stage("one <|im_start|>two") as stage:
        finished = await completed(stage, CompletionOptions(max_tokens=len(wrote), ids=True))

    assert [i for event in stage.of(IdsGenerated) for i in event.ids] == wrote
    assert (finished.reason, finished.completion_ids) == ("length", len(wrote))


async def test_text_that_may_begin_a_stop_string_is_shown_once_the_end_tells_that_it_does_not(open_stage):
    async with open_stage("one STO") as stage:
        await completed(stage, CompletionOptions(stops=("STOP",)))

    assert "".join(event.text for event in stage.of(Content)) == "one STO"
    assert all(event.text for event in stage.of(Content))


async def test_engine_gets_the_prompt_and_what_the_client_wants_of_it(open_stage):
    sampling = Sampling(temperature=0.5)
    async with open_stage("one", "two") as stage:
        await completed(stage, CompletionOptions(sampling=sampling))
        await completed(stage, CompletionOptions(form=COLOURS))

    first, second = stage.engine.asked
    assert first == replace(
        second, sampling=sampling, grammar=None, prompt=TINY.encode("Say it: "), max_tokens=first.max_tokens
    )
    assert (first.session, first.trace, first.triggers, first.logprobs, first.gather) == (b"", {}, (), False, True)


async def test_completion_names_its_conversation_where_the_engine_asks_for_it(open_stage):
    async with open_stage("one", "two", "three") as stage:
        ready = stage.route.ready()
        stage.route._ready = replace(ready, facts=replace(ready.facts, can=replace(ready.facts.can, sessions=True)))
        completer = Completer(stage.pool, LimitsConfig(), stage.metrics)
        for name in ("ada", "ada", "bob"):
            prompt = completer.open("Say it: ", Principal(name))
            await completer.answer(prompt, CompletionOptions(), stage.listen)

    one, two, three = [request.session for request in stage.engine.asked]
    assert one == two
    assert b"" not in (one, three)
    assert one != three


async def test_figures_of_a_completion_are_what_the_engine_reported_within_the_prompt(open_stage):
    async def report(prompt: list[int], most: int):
        yield Generated((5,))
        yield GenerationEnd("length", None, Timings(1, 10_000, 1, 0.5, 0.25), padded=4)

    async with open_stage("") as stage:
        stage.engine._events = report
        finished = [await completed(stage, CompletionOptions()) for _ in range(2)]

    prompt = len(TINY.encode("Say it: "))
    *_, stats = stage.of(GenerationFinished)
    # Of an unknown cache only what the slot is known to hold is told.
    assert finished[1] == Finished("length", prompt, prompt, 1)
    assert stats.timings == Timings(0, prompt, 1, 0.5, 0.25)
    assert stats.moved == 0
    cached = sum(each.cached_ids for each in finished)
    assert stage.metrics.get_prompt_tokens() == {"prompt_tokens": 2 * prompt, "cached_tokens": cached}
    assert figure(stage, "codec_padded_ids_total") == 8
    assert figure(stage, "codec_generation_prompt_ids_total") == 0
    assert figure(stage, "codec_generation_reused_ids_total") == 2 * prompt


@pytest.mark.parametrize(
    "told",
    [GenerationEnd.unreported(1), GenerationEnd("length", None, Timings(9, 0, 1, 0.5, 0.25), tells_cache=False)],
    ids=["nothing of the end", "nothing of the cache"],
)
async def test_answer_without_a_report_counts_for_nothing(open_stage, told):
    async def end(prompt: list[int], most: int):
        yield Generated((5,))
        yield told

    async with open_stage("") as stage:
        stage.engine._events = end
        finished = await completed(stage, CompletionOptions())

    (stats,) = stage.of(GenerationFinished)
    assert (stats.timings, finished.cached_ids) == (None, 0)
    assert stage.metrics.get_prompt_tokens() == {"prompt_tokens": 0, "cached_tokens": 0}


async def test_span_of_a_completion_says_what_was_asked_and_what_came_of_it(open_stage):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with open_stage("one two", "never") as stage:
        completer = Completer(stage.pool, LimitsConfig(), stage.metrics, Tracing(provider))
        options = CompletionOptions(max_tokens=50, sampling=Sampling(temperature=0.5, seed=7))
        await completer.answer(completer.open("Say it: "), options, stage.listen)
        stage.engine._breaks = True
        with pytest.raises(EngineUnavailable):
            await completer.answer(completer.open("Say it: "), CompletionOptions(max_tokens=50), stage.listen)

    answered, failed = [dict(span.attributes or {}) for span in exporter.get_finished_spans()]
    common = {
        "gen_ai.operation.name": "text_completion",
        "gen_ai.provider.name": "llama_cpp",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "scripted",
        "codec.engine": stage.route.ready().name,
    }
    assert answered == {
        **common,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.seed": 7,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": len(TINY.encode("Say it: ")),
        "gen_ai.usage.output_tokens": len(TINY.encode("one two")),
        "gen_ai.usage.cache_read.input_tokens": 0,
    }
    assert failed.pop("error.type", None) == "EngineUnavailable"
    assert failed == {**common, "gen_ai.response.finish_reasons": ("error",)}
    assert all("traceparent" in request.trace for request in stage.engine.asked)
