"""The attributes of spans of requests to an engine."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from gateway.agent.generate.engine_spans import plain_span, sampling_attributes, traced
from gateway.agent.generate.generation import Generation
from gateway.agent.generate.generation_options import GenerationOptions
from gateway.engine.interface import Generated, GenerationEnd, Sampling, Timings
from gateway.errors import EngineUnavailable
from gateway.escape import escape_text
from leaf_sdk.testing import tiny_map
from tests.gateway.exported_spans import ExportedSpans

pytestmark = pytest.mark.anyio

TINY = tiny_map()
QUESTION = [{"role": "user", "content": "What is it?"}]
SAY = '<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'


class Spans(ExportedSpans):
    """What is exported."""

    @property
    def one(self) -> ReadableSpan:
        (span,) = self.all
        return span

    @property
    def attributes(self) -> dict[str, Any]:
        return dict(self.one.attributes or {})


def test_only_what_was_asked_for_is_an_attribute():
    everything = Sampling(
        temperature=0.0, top_p=0.5, seed=0, presence_penalty=0.25, frequency_penalty=-1.0, top_k=0, min_p=0.1
    )

    assert sampling_attributes(Sampling()) == {"gen_ai.request.stream": True}
    assert sampling_attributes(everything) == {
        "gen_ai.request.temperature": 0.0,
        "gen_ai.request.top_p": 0.5,
        "gen_ai.request.presence_penalty": 0.25,
        "gen_ai.request.frequency_penalty": -1.0,
        "gen_ai.request.top_k": 0,
        "gen_ai.request.seed": 0,
        "gen_ai.request.stream": True,
    }


@pytest.mark.parametrize(
    ("asked", "shown"), [(None, "scripted"), ("", "scripted"), ("gpt-x", "gpt-x"), ("m" * 128, "m" * 128)]
)
async def test_request_without_messages_is_a_span_that_names_the_model(open_stage, asked, shown):
    spans = Spans()
    async with open_stage() as stage:
        ready = stage.route.ready()
    with plain_span(spans.tracing, "embeddings", ready, asked, {"given": 1}) as span:
        span.told["more"] = 2
        assert "traceparent" in span.headers

    assert spans.one.name == f"embeddings {shown}"
    assert spans.attributes == {
        "gen_ai.operation.name": "embeddings",
        "gen_ai.provider.name": "llama_cpp",
        "gen_ai.request.model": shown,
        "given": 1,
        "gen_ai.response.model": "scripted",
        "codec.engine": ready.name,
        "more": 2,
    }


async def test_long_name_of_a_model_is_cut_and_nothing_is_traced_without_tracing(open_stage):
    spans = Spans()
    async with open_stage() as stage:
        ready = stage.route.ready()
    with plain_span(spans.tracing, "embeddings", ready, "m\n" * 100, {}):
        pass
    with plain_span(None, "embeddings", ready, "m", {}) as untraced:
        assert (untraced.told, untraced.headers) == ({}, {})

    assert spans.attributes["gen_ai.request.model"] == escape_text("m\n" * 100, 128)
    assert "\n" not in spans.one.name


async def span_of(open_stage: Any, *says: str, events: Any = None, most: int = 100, **options: Any) -> Any:
    """The attributes of one generation's span, and its error."""
    spans, failure = Spans(), None
    async with open_stage(*says) as stage:
        conversation = await stage.agent.open(QUESTION)
        if events is not None:
            stage.engine._events = events
        asked = GenerationOptions(most, Sampling(seed=7), **options)
        generation = Generation(conversation, asked, stage.listen, stage.metrics)
        prompt = len(conversation.ids)
        try:
            await traced(spans.tracing, generation)
        except EngineUnavailable as error:
            failure = error
    found = spans.attributes
    assert spans.one.name == "chat scripted"
    common = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "llama_cpp",
        "gen_ai.request.model": "scripted",
        "gen_ai.request.max_tokens": most,
        "gen_ai.request.seed": 7,
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "scripted",
        "codec.engine": conversation.ready.name,
        "gen_ai.conversation.id": conversation.first_answer_id,
    }
    first = found.pop("gen_ai.response.time_to_first_chunk", None)
    assert {key: found.pop(key) for key in common} == common
    found.pop("error.type", None)
    return found, prompt, first, failure


@pytest.mark.parametrize(
    ("text", "most", "reason"), [("Well.", 100, "stop"), ("Well.", 3, "length"), (SAY, 100, "tool_calls")]
)
async def test_span_of_a_generation_says_why_it_ended_and_what_it_used(open_stage, text, most, reason):
    told, prompt, first, _ = await span_of(open_stage, text, most=most)

    assert told == {
        "gen_ai.response.finish_reasons": (reason,),
        "gen_ai.usage.cache_read.input_tokens": 0,
        "gen_ai.usage.input_tokens": prompt,
        "gen_ai.usage.output_tokens": min(len(TINY.encode(text, specials=True)), most),
    }
    assert first > 0


async def test_tokens_of_reasoning_are_told_where_there_are_some(open_stage):
    told, *_ = await span_of(open_stage, "<think>\nHm.\n</think>\n\nWell.")

    assert told["gen_ai.usage.reasoning.output_tokens"] == len(TINY.encode("<think>\nHm."))


async def test_generation_that_a_stop_string_ended_says_nothing_of_the_cache(open_stage):
    told, prompt, _, _ = await span_of(open_stage, "One STOP", stops=("STOP",))

    assert told["gen_ai.response.finish_reasons"] == ("stop",)
    assert told["gen_ai.usage.input_tokens"] == prompt
    assert "gen_ai.usage.cache_read.input_tokens" not in told


@pytest.mark.parametrize("ids", [0, 2])
async def test_generation_that_failed_says_what_it_used_if_it_had_begun(open_stage, ids):
    async def breaks(prompt: list[int], most: int):
        for token in TINY.encode("zz")[:ids]:
            yield Generated((token,))
        raise EngineUnavailable("the engine broke off")

    told, prompt, first, failure = await span_of(open_stage, events=breaks)

    used = {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": ids} if ids else {}
    assert told == {"gen_ai.response.finish_reasons": ("error",), **used}
    assert (first is not None) is bool(ids)
    assert failure is not None


async def test_generation_of_no_token_has_its_usage(open_stage):
    async def nothing(prompt: list[int], most: int):
        yield GenerationEnd("stop", None, Timings(len(prompt) - 5, 5, 0, 0.0, 0.0))

    told, prompt, first, _ = await span_of(open_stage, events=nothing)

    assert told["gen_ai.usage.input_tokens"] == prompt
    assert told["gen_ai.usage.output_tokens"] == 0
    assert first is None
