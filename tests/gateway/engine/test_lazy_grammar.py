"""A grammar that waits for a token, on real ids: free text until then, a call that fits from then on.

Over a llama.cpp server, and over vLLM's wire in front of it, where it goes out as a structural tag; `make vllm-check`
runs it over the real vLLM.
"""

import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from gateway.agent.generate.generation import Generation
from gateway.agent.generate.generation_options import FREE, GenerationOptions, hold_for
from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.context.compose.conversation import Asked, Context, Conversation
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import GenerateRequest, Sampling
from gateway.engine.pool.pool import Stay
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.engine.wire.llama_cpp_json import completion_body
from gateway.errors import EngineRefused, GrammarRefused
from gateway.observe.metrics import Metrics
from gateway.toolcalls.formats.format import call_grammar, call_triggers
from gateway.toolcalls.formats.registry import ChosenFormat, format_named
from gateway.toolcalls.schema.spec import validate_call
from gateway.toolcalls.stream.output_events import Diagnostic
from leaf_sdk.vocab import TokenMap
from tests.conftest import vllm_wire
from tests.standins.issue_calls import CLOCK, END, ISSUES, calls_of, shots, start_of, waiting

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


REAL = os.environ.get("ENGINE", "")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module", params=[REAL] if REAL.startswith("http") else ["llama_cpp", "vllm", "old_vllm"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == REAL:
        yield REAL
        return
    trained: str = request.getfixturevalue("trained_engine_url")
    if request.param == "llama_cpp":
        yield trained
        return
    with vllm_wire(trained, *(["--old"] if request.param == "old_vllm" else [])) as wire:
        yield wire


@pytest.fixture(scope="module")
async def ready(url: str) -> AsyncIterator[ReadyEngine]:
    engine = EngineConfig(kind="url", url=url, model=packaged_model(), at_once=2)
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig()), lambda up, reason: None)
    async with route.running():
        yield replace(route.ready(), tool_format=ChosenFormat(ISSUES, preamble=False, calls_as_text=False))


@pytest.fixture
async def llama_cpp(trained_engine_url: str, model_map: TokenMap) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(trained_engine_url, token_map=model_map)
    yield client
    await client.aclose()


async def generate(ready: ReadyEngine, request: GenerateRequest) -> list[int]:
    """The ids of a generation, without the end of the turn."""
    async with ready.engine.generate(request) as events:
        return [token_id async for event in events for token_id in getattr(event, "ids", ()) if token_id != END]


async def test_a_call_that_begins_with_its_token_fits_its_schema_and_ends_the_answer(ready: ReadyEngine) -> None:
    token_map = ready.token_map
    ids = await generate(ready, waiting(shots(CLOCK.name, token_map), token_map, parallel=False, begins=True))

    assert ids[0] == start_of(token_map)
    (call,) = calls_of(ids, token_map)
    assert call.name == CLOCK.name


async def test_prose_that_spells_the_marker_does_not_wake_the_grammar(ready: ReadyEngine) -> None:
    token_map = ready.token_map
    for said in ('It is "<issue_start>" here.', "It is `<issue_start>`, as always.", "It is <issue_start>."):
        ids = await generate(ready, waiting(shots(said, token_map), token_map, parallel=False, begins=False))
        assert token_map.decode(ids) == said


async def test_a_marker_of_ordinary_tokens_would_break_the_generation_and_is_no_trigger(
    llama_cpp: LlamaCpp, model_map: TokenMap
) -> None:
    assert call_triggers(format_named("generic"), model_map) == ()
    body = {
        **completion_body(GenerateRequest(shots('It is "<tool_call>" here.', model_map), 0, 40)),
        "stream": False,
        "temperature": 0,
        "grammar": call_grammar(format_named("generic"), [CLOCK], choice="required"),
        "grammar_lazy": True,
        "grammar_triggers": [{"type": 1, "value": "<tool_call>"}],
    }
    with pytest.raises(EngineRefused, match="Unexpected empty grammar stack"):
        await llama_cpp._post("/completion", body)  # pyright: ignore[reportPrivateUsage]


async def test_several_calls_come_where_that_is_allowed_with_every_marker_as_its_token(ready: ReadyEngine) -> None:
    # The model has never seen these two: left to itself it spells them, and the parser would not know its own calls.
    token_map = ready.token_map
    start, end = (token_map.special_tokens[marker] for marker in ("<issue_start>", "<issue_closed>"))
    ids = await generate(ready, waiting(shots(CLOCK.name, token_map), token_map, parallel=True, begins=True))

    assert 1 < len(calls_of(ids, token_map)) <= 16
    assert ids.count(start) > 1
    assert ids.count(end) in (ids.count(start), ids.count(start) - 1)
    assert "issue" not in token_map.decode([token_id for token_id in ids if token_id not in (start, end)])


async def test_one_that_the_engine_does_not_take_is_refused_as_a_grammar(ready: ReadyEngine) -> None:
    asked = waiting(shots(CLOCK.name, ready.token_map), ready.token_map, parallel=False, begins=False)
    with pytest.raises(GrammarRefused):
        await generate(ready, replace(asked, grammar="root ::= ("))


async def test_the_agent_holds_a_call_that_the_model_begins_of_itself_to_its_schema(ready: ReadyEngine) -> None:
    token_map = ready.token_map
    start = start_of(token_map)
    conversation = Conversation(Asked(ISSUES, (CLOCK,)), Stay(ready), Context(shots(CLOCK.name, token_map)))
    hold = hold_for(conversation, FREE, parallel=False, always=True)
    told: list[object] = []

    async def listen(event: object) -> None:
        told.append(event)

    sampling = Sampling(seed=1, logit_bias=((start, 60.0),))
    options = GenerationOptions(max_tokens=120, sampling=sampling, hold=hold)
    result = await Generation(conversation, options, listen, Metrics()).run()
    assert result.calls
    assert [validate_call(CLOCK, json.loads(call.arguments)) for call in result.calls] == [[]] * len(result.calls)
    assert {event.kind for event in told if isinstance(event, Diagnostic)} <= {"truncated"}
    assert conversation.ids.count(start) >= len(result.calls)
