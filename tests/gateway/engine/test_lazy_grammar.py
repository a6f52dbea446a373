"""A grammar that waits for a token, on the real engine: free text until then, a call that fits from then on."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.agent.choice import FREE, hold_for
from gateway.agent.conversation import Conversation
from gateway.agent.generation import Generation, GenerationOptions
from gateway.engine.interface import GenerateRequest, Sampling
from gateway.engine.llama_cpp.client import LlamaCpp
from gateway.engine.llama_cpp.json import completion_body
from gateway.engine.readiness import ReadyEngine
from gateway.engine.slots import SlotTable
from gateway.engine.template import ChatTemplate
from gateway.errors import EngineRefused
from gateway.observe.metrics import Metrics
from gateway.toolcalls import (
    ChosenFormat,
    Format,
    ToolSpec,
    call_grammar,
    call_triggers,
    format_named,
    parser_for,
    validate_call,
)
from gateway.toolcalls.nodes.combinators import Seq
from gateway.toolcalls.nodes.json import Field, Json, Record
from gateway.toolcalls.nodes.passages import Prose
from gateway.toolcalls.nodes.quoted import QuotedName
from gateway.toolcalls.nodes.readers import Marker, Space
from gateway.toolcalls.nodes.regions import Call, Calls, Region
from gateway.toolcalls.stream.events import CallClosed, Diagnostic
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

CLOCK = ToolSpec(
    "get_time", "", {"type": "object", "properties": {"tz": {"type": "string", "maxLength": 8}}, "required": ["tz"]}
)
CALL = Call(Record((Field(("name",), QuotedName()), Field(("arguments",), Json(), required=False))))
# The packaged model has no tokens for calls; these two are special tokens of its vocabulary.
REGION = Region("<issue_start>", Space("\n"), CALL, Space("\n"), Marker("<issue_closed>"))
ISSUES = Format("issues", Seq(Prose(REGION)), Calls(REGION, Space("\n")), "")
END = 2
"""The packaged model's end of turn."""


@pytest.fixture
async def engine(engine_url: str, model_map: TokenMap) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(engine_url, token_map=model_map)
    yield client
    await client.aclose()


def shots(answer: str, token_map: TokenMap) -> list[int]:
    """A prompt after which a small model repeats `answer`, spelled in ordinary tokens."""
    ids: list[int] = []
    for zone in ("CET", "UTC", "PST", "EST"):
        ids += token_map.encode(f"<|im_start|>user\nTime in {zone}?<|im_end|>\n<|im_start|>assistant\n", specials=True)
        if zone != "EST":
            ids += [*token_map.encode(answer), END, *token_map.encode("\n")]
    return ids


async def generate(
    engine: LlamaCpp, prompt: list[int], token_map: TokenMap, *, parallel: bool, **more: Any
) -> list[int]:
    """The ids that the server gives for what `GenerateRequest` asks."""
    grammar = call_grammar(ISSUES, [CLOCK], choice="required", parallel=parallel, vocabulary=token_map)
    triggers = call_triggers(ISSUES, token_map)
    request = GenerateRequest(prompt, 0, 150, Sampling(seed=1), grammar=grammar, triggers=triggers)
    body = {**completion_body(request), "stream": False, **more}
    answer = await engine._post("/completion", body)  # pyright: ignore[reportPrivateUsage]
    return [token_id for token_id in answer["tokens"] if token_id != END]


async def calls(engine: LlamaCpp, token_map: TokenMap, *, parallel: bool) -> list[CallClosed]:
    """What comes when the model begins with the token: it never does so of itself, so we weigh that token."""
    (trigger,) = call_triggers(ISSUES, token_map)
    prompt = shots(CLOCK.name, token_map)
    ids = await generate(engine, prompt, token_map, parallel=parallel, logit_bias=[[trigger.token_id, 60]])
    assert ids[0] == trigger.token_id
    parser = parser_for(ISSUES, token_map, [CLOCK])
    events = [*parser.feed(ids), *parser.close()]
    # Sixteen calls would take long: the limit may cut one off.
    assert {event.kind for event in events if isinstance(event, Diagnostic)} <= {"truncated"}
    return [event for event in events if isinstance(event, CallClosed)]


async def test_a_call_that_begins_with_its_token_fits_its_schema_and_ends_the_answer(
    engine: LlamaCpp, model_map: TokenMap
) -> None:
    (call,) = await calls(engine, model_map, parallel=False)
    assert call.name == CLOCK.name
    assert validate_call(CLOCK, json.loads(call.arguments)) == []


async def test_more_than_one_call_comes_where_that_is_allowed(engine: LlamaCpp, model_map: TokenMap) -> None:
    made = await calls(engine, model_map, parallel=True)
    assert 1 < len(made) <= 16
    assert [validate_call(CLOCK, json.loads(call.arguments)) for call in made] == [[]] * len(made)


async def test_prose_that_spells_the_marker_does_not_wake_the_grammar(engine: LlamaCpp, model_map: TokenMap) -> None:
    for said in ('It is "<issue_start>" here.', "It is `<issue_start>`, as always.", "It is <issue_start>."):
        ids = await generate(engine, shots(said, model_map), model_map, parallel=False, temperature=0)
        assert model_map.decode(ids) == said


async def test_a_marker_of_ordinary_tokens_would_break_the_generation_and_is_no_trigger(
    engine: LlamaCpp, model_map: TokenMap
) -> None:
    assert call_triggers(format_named("generic"), model_map) == ()
    body = {
        "prompt": shots('It is "<tool_call>" here.', model_map),
        "n_predict": 40,
        "temperature": 0,
        "grammar": call_grammar(format_named("generic"), [CLOCK], choice="required"),
        "grammar_lazy": True,
        "grammar_triggers": [{"type": 1, "value": "<tool_call>"}],
    }
    with pytest.raises(EngineRefused, match="Unexpected empty grammar stack"):
        await engine._post("/completion", body)  # pyright: ignore[reportPrivateUsage]


async def test_every_marker_under_a_grammar_of_tokens_comes_as_its_token(engine: LlamaCpp, model_map: TokenMap) -> None:
    # The model has never seen these two: left to itself it spells them, and the parser would not know its own calls.
    start, end = (model_map.special_tokens[marker] for marker in ("<issue_start>", "<issue_closed>"))
    prompt = shots(CLOCK.name, model_map)
    ids = await generate(engine, prompt, model_map, parallel=True, logit_bias=[[start, 60]])
    assert ids.count(start) > 1
    assert ids.count(end) in (ids.count(start), ids.count(start) - 1)
    assert "issue" not in model_map.decode([token_id for token_id in ids if token_id not in (start, end)])


async def test_the_agent_holds_a_call_that_the_model_begins_of_itself_to_its_schema(
    engine: LlamaCpp, model_map: TokenMap, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = model_map.special_tokens["<issue_start>"]
    weighed = {"logit_bias": [[start, 60]]}
    monkeypatch.setattr(
        "gateway.engine.llama_cpp.client.completion_body", lambda request: completion_body(request) | weighed
    )
    facts = await engine.facts()
    template = ChatTemplate(engine, facts, model_map)
    ready = ReadyEngine(engine, facts, model_map, template, SlotTable(1), ChosenFormat(ISSUES, preamble=False))
    conversation = Conversation(ready, ISSUES, (CLOCK,), shots(CLOCK.name, model_map))
    hold = hold_for(conversation, FREE, parallel=False, always=True)
    told: list[object] = []

    async def listen(event: object) -> None:
        told.append(event)

    options = GenerationOptions(max_tokens=120, sampling=Sampling(seed=1), hold=hold)
    result = await Generation(conversation, options, listen, Metrics()).run()
    assert result.calls
    assert [validate_call(CLOCK, json.loads(call.arguments)) for call in result.calls] == [[]] * len(result.calls)
    assert {event.kind for event in told if isinstance(event, Diagnostic)} <= {"truncated"}
    assert conversation.ids.count(start) >= len(result.calls)
