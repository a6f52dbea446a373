"""Conversations that come back as items: whatever a client makes of them, the model goes on from what it wrote."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from tests.cases import each_of

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
SCHEMA: Json = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "number", "default": 1}},
    "required": ["city"],
}
TOOLS: list[Json] = [
    {"type": "function", "name": "weather", "parameters": SCHEMA},
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "files", "description": "", "tools": [{"type": "function", "name": "read"}]},
]
CALLED = (
    "<think>\nA city.\n</think>\n\nLet me see.\n\n"
    '<tool_call>\n{"name": "weather", "arguments": {"days": 20.0, "city": "Z\\u00fcrich"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "patch", "arguments": {"input": "a\\nb"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "files__read", "arguments": {}}\n</tool_call>'
)
ASKED = '<think>\nAsk.\n</think>\n\nOne moment.\n<tool_call>\n{"name": "up__say", "arguments": {}}\n</tool_call>'
AGAIN = '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>'
TEXTS = ((CALLED,), (ASKED, "<think>\nSo.\n</think>\n\nIt is 42. "), ("Fine.",), (AGAIN,), ("Bye.",))
"""What the model writes, a request each."""


@pytest.fixture(scope="module")
async def open_stage(responses_stage: Callable[..., Any]) -> AsyncGenerator[Any]:
    async with responses_stage() as opened:
        yield opened


def as_they_came(item: Json) -> Json:
    return item


def without_ids(item: Json) -> Json:
    """As LangChain has it: without what it does not know."""
    kept = {key: value for key, value in item.items() if key not in ("id", "status") or item["type"] == "reasoning"}
    parts = [{"type": part["type"], "text": part["text"]} for part in item.get("content") or ()]
    return {**kept, "content": parts} if item["type"] == "message" else kept


def like_codex(item: Json) -> Json:
    return {**item, "content": None} if item["type"] == "reasoning" else item


def like_pydantic_ai(item: Json) -> Json:
    if item["type"] == "reasoning":
        text = (item.get("content") or item["summary"])[0]["text"]
        return {"role": "assistant", "content": f"<think>\n{text}\n</think>"}
    if item["type"] == "message":
        return {"role": "assistant", "content": item["content"][0]["text"]}
    kept = {key: value for key, value in item.items() if key not in ("id", "status", "namespace")}
    return rewritten(kept, {}, ensure_ascii=False) if "arguments" in kept else kept


def like_the_ai_sdk(item: Json) -> Json:
    if item["type"] in ("message", "reasoning", "mcp_call"):
        return {"type": "item_reference", "id": item["id"]}
    return rewritten(item, {"days": 1}) if item.get("name") == "weather" else item


def rewritten(item: Json, defaults: Json, **how: Any) -> Json:
    arguments = {"city": None, **defaults, **json.loads(item["arguments"])}
    written = {key: value for key, value in arguments.items() if value is not None}
    return {**item, "arguments": json.dumps(written, separators=(",", ":"), **how)}


def results_of(output: list[Json], *, reverse: bool) -> list[Json]:
    """What a client's tools say, of parallel calls in either order; or its next question."""
    calls = [item for item in output if item["type"] in ("function_call", "custom_tool_call")]
    results = [{"type": f"{c['type']}_output", "call_id": c["call_id"], "output": "Sunny, 20 °C"} for c in calls]
    return results[::-1] if reverse and results else results or [{"role": "user", "content": "And now?"}]


STYLES: list[tuple[Callable[[Json], Json], Json]] = [
    (as_they_came, {}),
    (without_ids, {"store": False}),
    (like_codex, {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}),
    (like_pydantic_ai, {}),
    (like_the_ai_sdk, {}),
]


@each_of("reverse", [False, True])
@each_of(("echo", "more"), STYLES)
async def test_echoed_items_find_all_that_is_held(
    open_stage: Any, echo: Callable[[Json], Json], more: Json, reverse: bool
) -> None:
    open_stage.reset()
    items: list[Json] = [{"role": "user", "content": f"Hello, {echo.__name__} {reverse}."}]
    for number, texts in enumerate(TEXTS):
        response = await open_stage.ask(*texts, input=items, tools=TOOLS, **more, stream=number % 2 == 1)
        items += [*map(echo, response["output"]), *results_of(response["output"], reverse=reverse)]
        assert number == 0 or found_all(response), (number, response["codec"]["prompt"])


def found_all(response: Json) -> bool:
    told = response["codec"]["prompt"]
    return told["held"] > 0 and told["held"] == told["reused"]


@pytest.mark.parametrize("reverse", [False, True], ids=["in order", "reversed"])
async def test_response_that_follows_another_finds_all_that_is_held(open_stage: Any, reverse: bool) -> None:
    open_stage.reset()
    items: list[Json] = [{"role": "user", "content": f"Hello, you {reverse}."}]
    previous: str | None = None
    for number, texts in enumerate(TEXTS):
        follows = {} if previous is None else {"previous_response_id": previous}
        response = await open_stage.ask(*texts, input=items, tools=TOOLS, **follows, stream=number % 2 == 1)
        previous, items = response["id"], results_of(response["output"], reverse=reverse)
        assert number == 0 or found_all(response), (number, response["codec"]["prompt"])


@pytest.mark.parametrize("echo", [as_they_came, without_ids, like_codex, like_pydantic_ai])
async def test_results_between_the_calls_of_one_turn_leave_it_one(
    open_stage: Any, echo: Callable[[Json], Json]
) -> None:
    open_stage.reset()
    question = {"role": "user", "content": f"Hello, {echo.__name__}, between."}
    response = await open_stage.ask(CALLED, input=[question], tools=TOOLS)
    mixed: list[Json] = []
    for item in response["output"]:
        mixed += [echo(item), *(results_of([item], reverse=False) if "call_id" in item else [])]
    later = await open_stage.ask("Fine.", input=[question, *mixed], tools=TOOLS)

    assert found_all(later), later["codec"]["prompt"]


async def test_calls_of_two_turns_stay_two(open_stage: Any) -> None:
    open_stage.reset()
    items: list[Json] = [{"role": "user", "content": "Hello, twice."}]
    for number in range(3):
        response = await open_stage.ask(AGAIN, input=items, tools=TOOLS)
        items += [*response["output"], *results_of(response["output"], reverse=False)]
        assert number == 0 or found_all(response), response["codec"]["prompt"]


async def test_seal_brings_back_what_the_model_thought_and_nobody_elses(open_stage: Any) -> None:
    open_stage.reset()
    more: Json = {"store": False, "include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    response = await open_stage.ask("<think>A secret.</think>Hello.", input="hi", **more)
    thought, said = response["output"]
    echoed = [{**thought, "summary": []}, said, {"role": "user", "content": "And now?"}]
    question = {"role": "user", "content": "another conversation"}
    mine = await open_stage.ask("Fine.", input=[question, *echoed], **more)
    open_stage.principal = type(open_stage.principal)("bob")
    theirs = await open_stage.ask("Fine.", input=[question, *echoed], **more)

    assert "ignored" not in mine["codec"]
    assert theirs["codec"]["ignored"] == ["input.reasoning.encrypted_content"]
    assert "secret" not in open_stage.engine.prompts[-1]


async def test_items_of_stored_responses_are_found_by_reference_however_mixed(open_stage: Any) -> None:
    open_stage.reset()
    first = await open_stage.ask("One.", input="hi")
    second = await open_stage.ask("Two.", input="hello")
    references = [{"type": "item_reference", "id": each["output"][0]["id"]} for each in (second, first)]
    await open_stage.ask("Fine.", input=[references[0], {"role": "user", "content": "x"}, references[1]])

    prompt = open_stage.engine.prompts[-1]
    assert prompt.index("Two.") < prompt.index("x<|im_end|>") < prompt.index("One.")


SERVER: Json = {"type": "mcp", "server_label": "up"}


async def test_calls_of_the_gateway_are_told_again_once_they_are_forgotten(responses_stage: Callable[..., Any]) -> None:
    items: list[Json] = [{"role": "user", "content": "Hello."}]
    async with responses_stage() as stage:
        response = await stage.ask(ASKED.partition("</think>\n\n")[2], "So it is.", input=items, tools=[SERVER])
        items += [*response["output"], {"role": "user", "content": "And now?"}]
        lived = (await stage.ask("Fine.", input=items, tools=[SERVER])), stage.engine.prompts[-1]
    async with responses_stage() as stage:
        await stage.ask("Fine.", input=items, tools=[SERVER])
        told = stage.engine.prompts[-1]

    assert found_all(lived[0])
    (call,) = [item for item in response["output"] if item["type"] == "mcp_call"]
    assert call["output"] == "It is 42."
    assert told == lived[1]
