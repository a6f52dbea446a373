"""A schema that is too much for the engine's grammars, on llama.cpp's own server: what it refuses is held loosely.

Our grammars stay below its limits. Another build may have lower ones, which is the same as grammars with larger counts.
"""

import json
from collections.abc import AsyncIterator

import pytest

from gateway.agent.generate.generation import Generation
from gateway.agent.generate.generation_options import GenerationOptions, ToolChoice, hold_for
from gateway.context.compose.conversation import Asked, Context, Conversation
from gateway.engine.interface import GenerateRequest, Sampling
from gateway.engine.pool.pool import Stay
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineRefused, GrammarRefused
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import ChosenFormat, format_named
from gateway.toolcalls.schema.spec import ToolSpec, validate_call
from gateway.toolcalls.stream.output_events import CallClosed, Diagnostic
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

GENERIC = format_named("generic")
LONG = ToolSpec("write", "", {"properties": {"text": {"type": "string", "minLength": 3000}}, "required": ["text"]})
SHORT = ToolSpec("get_time", "", {"type": "object", "properties": {"tz": {"enum": ["CET", "UTC"]}}, "required": ["tz"]})
CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'


@pytest.fixture(autouse=True)
def _counts_beyond_what_the_engine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.toolcalls.grammar.gbnf.MAX_COUNT", 1_000_000)
    monkeypatch.setattr("gateway.toolcalls.grammar.gbnf.MAX_COUNTED", 1_000_000)


@pytest.fixture
async def ready(trained_engine_url: str, model_map: TokenMap) -> AsyncIterator[ReadyEngine]:
    engine = LlamaCpp(trained_engine_url, token_map=model_map)
    facts = await engine.facts()
    template = ChatTemplate(engine, facts, model_map)
    yield ReadyEngine(
        engine, facts, model_map, template, SlotTable(1), ChosenFormat(GENERIC, preamble=True, calls_as_text=True)
    )
    await engine.aclose()


async def called(ready: ReadyEngine, choice: ToolChoice, like: str, metrics: Metrics) -> list[object]:
    """What is told of one generation, after a prompt in which the model makes the same call several times."""
    turn = f"<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n{like}<|im_end|>\n"
    prompt = ready.token_map.encode(
        f"{turn * 3}<|im_start|>user\nGo.<|im_end|>\n<|im_start|>assistant\n", specials=True
    )
    conversation = Conversation(Asked(GENERIC, (LONG, SHORT)), Stay(ready), Context(prompt))
    told: list[object] = []

    async def listen(event: object) -> None:
        told.append(event)

    hold = hold_for(conversation, choice, parallel=False, always=False)
    options = GenerationOptions(max_tokens=120, sampling=Sampling(temperature=0), hold=hold)
    await Generation(conversation, options, listen, metrics).run()
    return told


async def test_engine_names_a_grammar_that_it_does_not_take(ready: ReadyEngine) -> None:
    for grammar in (call_grammar(GENERIC, [LONG], choice="required"), 'root ::= root "a"\n', "no grammar"):
        with pytest.raises(GrammarRefused, match="grammar"):
            async with ready.engine.generate(GenerateRequest([1], None, 1, grammar=grammar)):
                pass
    with pytest.raises(EngineRefused) as other:
        async with ready.engine.generate(GenerateRequest([1] * 9000, None, 1, grammar='root ::= "a"')):
            pass
    assert not isinstance(other.value, GrammarRefused)


async def test_refused_schema_is_held_by_its_name_and_the_others_by_theirs(ready: ReadyEngine) -> None:
    metrics = Metrics()
    loose = await called(ready, ToolChoice.named("write"), CALL % ("write", '{"text": "Hi."}'), metrics)
    tight = await called(ready, ToolChoice("required"), CALL % ("get_time", '{"tz": "CET"}'), metrics)
    (free,) = [event for event in loose if isinstance(event, CallClosed)]
    (held,) = [event for event in tight if isinstance(event, CallClosed)]

    assert (free.name, json.loads(free.arguments)) == ("write", {"text": "Hi."})
    assert (held.name, validate_call(SHORT, json.loads(held.arguments))) == ("get_time", [])
    for told in (loose, tight):
        assert [event.kind for event in told if isinstance(event, Diagnostic)] == ["loose"]
    assert (LONG in ready.loose, SHORT in ready.loose) == (True, False)
    assert metrics.registry.get_sample_value("codec_refused_grammars_total") == 1


async def test_refused_schema_is_found_among_others(ready: ReadyEngine) -> None:
    told = await called(ready, ToolChoice("required"), CALL % ("get_time", '{"tz": "CET"}'), Metrics())

    (call,) = [event for event in told if isinstance(event, CallClosed)]
    assert (call.name, validate_call(SHORT, json.loads(call.arguments))) == ("get_time", [])
    assert (LONG in ready.loose, SHORT in ready.loose) == (True, False)
