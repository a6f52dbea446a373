"""What stands behind a turn of the model is what the template itself writes there, for all templates of llama.cpp.

The law: prompt + the model's turn + scaffold + results decodes to the engine's own rendering of the same conversation.
The model's turn is taken from that rendering, so that it is written as the template writes it.
"""

import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.engine.interface import EngineFacts, Message
from gateway.engine.rendering.scaffold import TurnEnd, TurnShape
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineRefused
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

TEMPLATES = sorted(path.stem for path in (Path(__file__).parents[2] / "third_party" / "chat_templates").glob("*.jinja"))
ENDS = (
    *(
        "<|im_end|>",
        "<|eot_id|>",
        "<|eom_id|>",
        "<|call|>",
        "<|calls|>",
        "<|end|>",
        "<|eot|>",
        "<no_eos>",
        "<end_of_turn>",
    ),
    *("<|END_OF_TURN_TOKEN|>", "<seed:eos>", "<|end_of_text|>", "<｜end▁of▁sentence｜>", "<|role_end|>", "[e~["),
    *("<|message_sep|>", "<end_of_sentence>", "<SPECIAL_12>", "<|observation|>", "<|end_of_msg|>", "<|ifm|im_end|>"),
    *("</assistant>", "<sep>", "<｜hy_eos:opensource｜>", "<|tool_response>"),
)
"""What ends a turn in one of the templates."""
CLOSED_BY = {"Apertus-8B-Instruct": "<|tools_suffix|>", "CohereForAI-c4ai-command-r-plus-tool_use": "]```"}
"""What the model writes last where its end of turn is not shown before results."""
SHOWS_NO_CALLS = {
    *("HuggingFaceTB-SmolLM3-3B", "LFM2-8B-A1B", "LFM2.5-Instruct", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"),
    *("google-gemma-2-2b-it", "google-translategemma-4b-it", "ibm-granite-granite-3.3-2B-Instruct"),
    *("llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct"),
}
"""Templates that drop or refuse calls: results follow words there."""
ONE_CALL_A_TURN = {f"meta-llama-Llama-3.{n}" for n in ("1-8B-Instruct", "2-3B-Instruct", "3-70B-Instruct")}
READS_RESULTS = {"google-gemma-4-31B-it-interleaved"}
"""Templates that show a result which is JSON in another form."""
ALL_COUNTS = "CODEC_ALL_MARKERS" in os.environ
TEXTS = ("It is 42.", ' say "hi"\n\tand \\ back ', "é 東京 😀\n\n")
JSON_TEXTS = (
    '{"sky": "sunny", "wind": [1, 2.5, null], "deep": {"so": true}}',
    '{"files": ["a.txt", "b <c>"], "more": {}}',
)
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Tells about {name}",
            "parameters": {"type": "object", "properties": {"value": {"type": "string", "description": "What"}}},
        },
    }
    for name in ("get_weather", "list_files", "never_called")
]


@pytest.fixture(scope="module", params=TEMPLATES)
def served(request: pytest.FixtureRequest, serve_template: Callable[[str], str]) -> tuple[str, str]:
    return request.param, serve_template(request.param)


@pytest.fixture
async def engine(served: tuple[str, str]) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(served[1])
    yield client
    await client.aclose()


def called(names: tuple[str, ...], texts: tuple[str, ...], turn: int = 0) -> list[Message]:
    """A turn with calls, and their results."""
    ids = [f"abcdef{turn}{n:02d}" for n in range(len(names))]
    calls: list[dict[str, Any]] = [
        {"type": "function", "id": call_id, "function": {"name": name, "arguments": json.dumps({"value": f"last{n}"})}}
        for n, (call_id, name) in enumerate(zip(ids, names, strict=True))
    ]
    results = [
        {"role": "tool", "content": text, "name": name, "tool_call_id": call_id}
        for name, text, call_id in zip(names, texts, ids, strict=True)
    ]
    return [{"role": "assistant", "content": "", "tool_calls": calls}, *results]


def own_turn(name: str, rendering: str, last: str) -> tuple[str, str]:
    """The rendering up to where the model's turn ends, and the token that ends it."""
    start = rendering.rindex(last) + len(last)
    if closed := CLOSED_BY.get(name):
        return rendering[: rendering.index(closed, start) + len(closed)], ""
    at, token = min((rendering.index(token, start), token) for token in ENDS if token in rendering[start:])
    return rendering[:at], token


def counts_of(name: str, *, again: bool) -> tuple[int, ...]:
    """How many calls a turn has: in the suite one and two take turns, from template to template and turn to turn."""
    return (1, 2) if ALL_COUNTS else ((TEMPLATES.index(name) + again) % 2 + 1,)


async def decoded(engine: LlamaCpp, token_map: TokenMap, shape: TurnShape, end: TurnEnd, texts: tuple[str, ...]) -> str:
    template = ChatTemplate(engine, await engine.facts(), token_map)
    if any(text.startswith("{") for text in texts) and await template.reads_results():
        whole = await template.scaffold_with(shape, end, texts)
        return "".join(map(token_map.decode, whole.pieces))
    scaffold = await template.scaffold(shape, end, "tool", len(texts))
    first, *others = scaffold.pieces
    ids = list(first)
    for number, (text, after) in enumerate(zip(texts, others, strict=True)):
        ids += [*scaffold.fitted(number, token_map.encode(text), token_map), *after]
    return token_map.decode(ids)


@pytest.mark.parametrize("again", [False, True], ids=["first turn", "second turn"])
async def test_prompt_turn_scaffold_and_results_are_the_engines_own_rendering(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap, again: bool
) -> None:
    name, _ = served
    facts = await engine.facts()
    for count in counts_of(name, again=again):
        await check_turn(engine, name, facts, markers_map, count, again=again)


async def check_turn(
    engine: LlamaCpp, name: str, facts: EngineFacts, markers_map: TokenMap, count: int, *, again: bool
) -> None:
    names, texts = ("get_weather", "list_files")[:count], TEXTS[1 : 1 + count]
    before = called(("list_files",), ("some",), turn=1) if again else []
    messages = [{"role": "user", "content": "Well?"}, *before, *called(names, texts)]
    shape = TurnShape(names, tools=facts.supports_tools, earlier=(1,) if again else ())
    if name in SHOWS_NO_CALLS or (name in ONE_CALL_A_TURN and count > 1):
        # It shows such a turn in no rendering; what follows is what follows words, or one call.
        shown = await decoded(engine, markers_map, shape, TurnEnd('"}}', "", ("a", "b")), texts)
        assert all(text.strip().split()[0].replace('"', "") in shown for text in texts)
        return
    rendering = await engine.apply_template(messages, TOOLS if facts.supports_tools else [])
    # Two templates show the first call of a turn alone.
    lived, token = own_turn(name, rendering, "last1" if "last1" in rendering else "last0")
    ids = tuple(f"abcdef0{n:02d}" for n in range(count))

    for end in (TurnEnd(lived[-64:], token, ids), TurnEnd(lived[-64:], "", ids), TurnEnd(lived[-64:], "<none>", ids)):
        assert lived + await decoded(engine, markers_map, shape, end, texts) == rendering


async def test_results_that_are_json_stand_as_the_engine_shows_them(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap
) -> None:
    name, _ = served
    facts = await engine.facts()
    for count in counts_of(name, again=False):
        await check_json(engine, name, facts, markers_map, count)


async def check_json(engine: LlamaCpp, name: str, facts: EngineFacts, markers_map: TokenMap, count: int) -> None:
    names, texts = ("get_weather", "list_files")[:count], JSON_TEXTS[:count]
    shape = TurnShape(names, tools=facts.supports_tools)
    if name in SHOWS_NO_CALLS or (name in ONE_CALL_A_TURN and count > 1):
        shown = await decoded(engine, markers_map, shape, TurnEnd('"}}', "", ("a", "b")), texts)
        assert "sunny" in shown
        return
    messages = [{"role": "user", "content": "Well?"}, *called(names, texts)]
    rendering = await engine.apply_template(messages, TOOLS if facts.supports_tools else [])
    lived, token = own_turn(name, rendering, "last1" if "last1" in rendering else "last0")
    end = TurnEnd(lived[-64:], token, tuple(f"abcdef0{n:02d}" for n in range(count)))

    assert lived + await decoded(engine, markers_map, shape, end, texts) == rendering
    assert await ChatTemplate(engine, facts, markers_map).reads_results() == (name in READS_RESULTS)


async def test_the_next_question_stands_as_the_template_shows_it(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap
) -> None:
    template = ChatTemplate(engine, await engine.facts(), markers_map)
    messages = [{"role": "user", "content": "Well?"}, {"role": "assistant", "content": "So."}]
    rendering = await engine.apply_template([*messages, {"role": "user", "content": "And?"}])
    scaffold = await template.scaffold(TurnShape(content=True), TurnEnd("So."), "user")
    before, after = map(markers_map.decode, scaffold.pieces)

    assert rendering.endswith(f"So.{before}And?{after}")


@pytest.mark.parametrize(
    ("texts", "words"), [(TEXTS[:2], ("It is 42.", "hi")), (JSON_TEXTS, ("sunny", "a.txt"))], ids=["text", "json"]
)
async def test_history_that_the_model_lived_is_taken_in_some_form(
    engine: LlamaCpp, markers_map: TokenMap, texts: tuple[str, ...], words: tuple[str, ...]
) -> None:
    facts = await engine.facts()
    template = ChatTemplate(engine, facts, markers_map)
    turn, *results = called(("get_weather", "list_files"), texts)
    ours = [{**call, "id": f"call_0123456789abcdef0123456{n}"} for n, call in enumerate(turn["tool_calls"])]
    results = [{**m, "tool_call_id": call["id"]} for m, call in zip(results, ours, strict=True)]
    messages = [
        *({"role": "user", "content": "Well?"}, {**turn, "tool_calls": ours}, *results),
        *({"role": "assistant", "content": "So."}, {"role": "user", "content": "And?"}),
    ]
    shown = markers_map.decode((await template.prompt(messages, TOOLS if facts.supports_tools else [])).ids)

    assert all(word in shown for word in words)


async def test_numbers_of_arguments_stay_as_they_were_written(engine: LlamaCpp, markers_map: TokenMap) -> None:
    facts = await engine.facts()
    template = ChatTemplate(engine, facts, markers_map)
    numbers = ["12345678901234567890", "2.0", "-1e3", "0.1"]
    arguments = json.dumps({"value": "x"})[:-1] + "".join(f', "n{n}": {text}' for n, text in enumerate(numbers)) + "}"
    turn, result = called(("get_weather",), ("some",))
    turn["tool_calls"][0]["function"]["arguments"] = arguments
    messages = [{"role": "user", "content": "Well?"}, turn, result]
    try:
        rendering = await engine.apply_template(messages, TOOLS if facts.supports_tools else [])
    except EngineRefused:
        return
    shown = markers_map.decode((await template.prompt(messages, TOOLS if facts.supports_tools else [])).ids)

    if "n0" in rendering:
        assert all(number in shown for number in numbers)
