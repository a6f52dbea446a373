"""Ids of calls: clients see the gateway's own, which are unique; the model and its template see the model's."""

import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.cases import each_of
from tests.gateway.serve.generation.three_apis import CHAT, MESSAGES, RESPONSES, SCHEMA, Apis, running

pytestmark = pytest.mark.anyio

OURS = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NOW = {"name": "now", "description": "Tells", "parameters": SCHEMA}
ASK = {"role": "user", "content": "hi"}


def wrote(*numbers: int, name: str = "now", arguments: str = "{}") -> str:
    """Calls as Kimi K2 writes them."""
    calls = (
        f"<|tool_call_begin|>functions.{name}:{n}<|tool_call_argument_begin|>{arguments}<|tool_call_end|>"
        for n in numbers
    )
    return f"<|tool_calls_section_begin|>{''.join(calls)}<|tool_calls_section_end|>"


@pytest.fixture
async def apis() -> AsyncGenerator[Apis]:
    async with running(tool_format="kimi_k2", says="It is late.") as found:
        yield found


def answered(message: dict[str, Any], *, backwards: bool = False) -> list[dict[str, Any]]:
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": f"result {n}"}
        for n, call in enumerate(message["tool_calls"])
    ]
    return results[::-1] if backwards else results


@pytest.mark.parametrize("backwards", [False, True])
async def test_calls_numbered_from_0_in_each_turn_have_ids_of_their_own_and_the_template_gets_the_models(
    apis: Apis, backwards: bool
) -> None:
    history: list[dict[str, Any]] = [ASK]
    tools = [{"type": "function", "function": NOW}]
    for said in (wrote(0), wrote(0, 1), wrote(0), "Done."):
        answer = await apis.ask(CHAT, {"messages": history, "tools": tools}, said)
        message = answer["choices"][0]["message"]
        history.append(message)
        history += answered(message, backwards=backwards) if message.get("tool_calls") else []

    ids = [call["id"] for message in history for call in message.get("tool_calls", ())]
    assert len(set(ids)) == len(ids) == 4
    assert all(map(OURS.fullmatch, ids))
    assert not any(each in apis.engine.prompts[-1] for each in ids)
    returned = re.findall(r"## Return of (\S+)\n(result \d)", apis.engine.prompts[-1])
    first, second = ("functions.now:0", "result 0"), ("functions.now:1", "result 1")
    assert returned == [first, first, second, first]
    assert apis.engine.prompts[-1].count("functions.now:0<|tool_call_argument_begin|>") == 3
    # What was written stays as it was, whatever is rendered.
    for earlier, later in zip(apis.engine.prompts, apis.engine.prompts[1:], strict=False):
        assert later.startswith(earlier)


async def test_conversation_that_the_template_is_asked_for_again_has_the_models_ids_too(apis: Apis) -> None:
    tools = [{"type": "function", "function": NOW}]
    answer = await apis.ask(CHAT, {"messages": [ASK], "tools": tools}, wrote(0, 1))
    message = answer["choices"][0]["message"]
    # A result and a question: not one of the simple turns that are only appended.
    history = [ASK, message, *answered(message), {"role": "user", "content": "and?"}]

    await apis.ask(CHAT, {"messages": history, "tools": tools}, "Done.")

    assert re.findall(r"Return of (\S+)", apis.engine.prompts[-1]) == ["functions.now:0", "functions.now:1"]
    assert "call_" not in apis.engine.prompts[-1].replace("tool_call_", "")


async def test_history_that_is_not_remembered_keeps_the_clients_ids() -> None:
    async with running(tool_format="kimi_k2") as first:
        tools = [{"type": "function", "function": NOW}]
        message = (await first.ask(CHAT, {"messages": [ASK], "tools": tools}, wrote(0)))["choices"][0]["message"]
    async with running(tool_format="kimi_k2") as second:
        await second.ask(CHAT, {"messages": [ASK, message, *answered(message)], "tools": tools}, "Done.")

        ours = message["tool_calls"][0]["id"]
        assert f"<|tool_call_begin|>{ours}<|tool_call_argument_begin|>" in second.engine.prompts[0]
        assert f"## Return of {ours}\n" in second.engine.prompts[0]


async def test_calls_of_one_request_that_the_gateway_runs_have_ids_of_their_own(apis: Apis) -> None:
    say = wrote(0, name="say")

    answer = await apis.ask(CHAT, {"messages": [ASK]}, say, say, "Done.")

    ids = [each["call_id"] for each in answer["codec"]["tool_results"]]
    assert len(set(ids)) == 2
    assert all(map(OURS.fullmatch, ids))
    assert re.findall(r"Return of (\S+)", apis.engine.prompts[-1]) == ["functions.say:0", "functions.say:0"]
    history = [ASK, answer["choices"][0]["message"], ASK]
    await apis.ask(CHAT, {"messages": history}, "Well.")
    assert apis.engine.prompts[-1].startswith(apis.engine.prompts[-2])


HERMES = '<tool_call>\n{{"name": "now", "arguments": {{}}, "id": {0}}}\n</tool_call>'
COHERE = '<|START_ACTION|>[{{"tool_call_id": {0}, "tool_name": "now", "parameters": {{}}}}]<|END_ACTION|>'
MISTRAL = '[TOOL_CALLS][{{"name": "now", "arguments": {{}}, "id": {0}}}]'
KIMI = "<|tool_calls_section_begin|><|tool_call_begin|>{}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
WRITTEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "kimi_k2": (
        KIMI,
        ("functions.now:0", "functions.now:00", "functions.now:4294967296", "now:1", "now", "functions.now"),
    ),
    "command_r7b": (COHERE, ('"0"', '"00"', '"functions.now:0"', '"ünï"', '"a.b:c"', '"{}"'.format("x" * 90))),
    "mistral": (MISTRAL, ('"abcdefghi"', '"a b\\nc"', '""', '"call_1"', '"9 <b>"')),
    "hermes": (HERMES, ('"call_0"', '"\\u0000"', "0", "null")),
}


@each_of(("family", "written"), [(family, each) for family, (_, ids) in WRITTEN.items() for each in ids])
async def test_id_that_a_model_writes_again_in_each_turn_is_shown_as_one_of_ours(family: str, written: str) -> None:
    said, tools = WRITTEN[family][0].format(written), [{"type": "function", "function": NOW}]
    history: list[dict[str, Any]] = [ASK]
    async with running(tool_format=family) as apis:
        for text in (said, said):
            message = (await apis.ask(CHAT, {"messages": history, "tools": tools}, text))["choices"][0]["message"]
            history += [message, *answered(message)]

        ids = [call["id"] for each in history for call in each.get("tool_calls", ())]
        assert len(set(ids)) == len(ids) == 2
        assert all(map(OURS.fullmatch, ids))


async def test_other_apis_show_the_same_ids(apis: Apis) -> None:
    tool = {"name": "now", "input_schema": SCHEMA}
    message = await apis.ask(MESSAGES, {"messages": [ASK], "tools": [tool]}, wrote(0, 1))
    blocks = [block for block in message["content"] if block["type"] == "tool_use"]
    response = await apis.ask(RESPONSES, {"input": [ASK], "tools": [{"type": "function", **NOW}]}, wrote(0, 1))
    items = [item for item in response["output"] if item["type"] == "function_call"]
    chunks = await apis.events(CHAT, {"messages": [ASK], "tools": [{"type": "function", "function": NOW}]}, wrote(0, 1))
    deltas = [call for chunk in chunks for choice in chunk["choices"] for call in choice["delta"].get("tool_calls", ())]

    ids = (
        [block["id"] for block in blocks] + [item["call_id"] for item in items] + [d["id"] for d in deltas if "id" in d]
    )
    assert len(set(ids)) == len(ids) == 6
    assert all(map(OURS.fullmatch, ids))

    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "late"} for block in blocks]
    turns = [ASK, {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
    await apis.ask(MESSAGES, {"messages": turns, "tools": [tool]}, "Done.")
    assert re.findall(r"Return of (\S+)", apis.engine.prompts[-1]) == ["functions.now:0", "functions.now:1"]


async def test_ids_that_the_gateway_makes_reach_the_template_unchanged() -> None:
    async with running(says="It is late.") as apis:
        said = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
        tools = [{"type": "function", "function": NOW}]
        first = await apis.ask(CHAT, {"messages": [ASK], "tools": tools}, said + said)
        message = first["choices"][0]["message"]

        ids = [call["id"] for call in message["tool_calls"]]

        assert all(re.fullmatch(r"call_[0-9a-f]{24}", each) for each in ids)
        assert ids[0][:-4] == ids[1][:-4]
