"""A call that a limit cuts: the APIs show it alike, streamed and whole, and take back what they have shown."""

import json
from typing import Any

import pytest

from tests.gateway.serve.generation.three_apis import CHAT, MESSAGES, RESPONSES, SCHEMA, TINY, Apis

pytestmark = pytest.mark.anyio

ARGUMENTS = '{"path": "a, b.txt", "text": "one line, and another"}'
WHOLE = f'<tool_call>\n{{"name": "write", "arguments": {ARGUMENTS}}}\n</tool_call>'
CUT = WHOLE[: WHOLE.index(", and")]
LIMIT = len(TINY.encode(CUT, specials=True))
HALF = '{"path": "a, b.txt", "text": "one line'
FUNCTION = {"name": "write", "description": "Write", "parameters": SCHEMA}
ASK = [{"role": "user", "content": "hi"}]
TAKEN = {"input": HALF}
"""What the model reads in place of the half."""


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": [*ASK, *messages], "tools": [{"type": "function", "function": FUNCTION}], **more}


def responses(*items: Any, **more: Any) -> dict[str, Any]:
    return {"input": [*ASK, *items], "tools": [{"type": "function", **FUNCTION}], "store": False, **more}


def messages(*turns: Any, eager: bool = False, **more: Any) -> dict[str, Any]:
    tool = {
        **{k: v for k, v in FUNCTION.items() if k != "parameters"},
        "input_schema": SCHEMA,
        "eager_input_streaming": eager,
    }
    return {"messages": [*ASK, *turns], "tools": [tool], **more}


async def chat_message(apis: Apis, *, stream: bool) -> tuple[dict[str, Any], str]:
    """The assistant's message as a client has it, and why it ended."""
    if not stream:
        (choice,) = (await apis.ask(CHAT, chat(max_tokens=LIMIT), WHOLE))["choices"]
        return choice["message"], choice["finish_reason"]
    choices = [chunk["choices"][0] for chunk in await apis.events(CHAT, chat(max_tokens=LIMIT), WHOLE)]
    deltas = [delta for choice in choices for delta in choice["delta"].get("tool_calls", ())]
    written = "".join(delta["function"].get("arguments", "") for delta in deltas)
    call = {"id": deltas[0]["id"], "type": "function", "function": {"name": "write", "arguments": written}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}, choices[-1]["finish_reason"]


@pytest.mark.parametrize("stream", [False, True])
async def test_chat_shows_the_half_and_takes_it_back(apis: Apis, stream: bool) -> None:
    message, reason = await chat_message(apis, stream=stream)
    (call,) = message["tool_calls"]
    assert (call["function"], reason) == ({"name": "write", "arguments": HALF}, "length")

    result = {"role": "tool", "tool_call_id": call["id"], "content": "invalid arguments"}
    answer = await apis.ask(CHAT, chat(message, result, {"role": "user", "content": "again"}), "Sorry.")

    assert json.dumps(TAKEN) in apis.engine.prompts[-1]
    (told,) = answer["codec"]["diagnostics"]
    assert (told["kind"], "'write'" in told["message"]) == ("history", True)


@pytest.mark.parametrize("stream", [False, True])
async def test_responses_shows_an_incomplete_item_and_takes_it_back(apis: Apis, stream: bool) -> None:
    body = responses(max_output_tokens=LIMIT)
    if stream:
        response = (await apis.events(RESPONSES, body, WHOLE))[-1]["response"]
    else:
        response = await apis.ask(RESPONSES, body, WHOLE)
    (item,) = response["output"]
    assert (item["arguments"], item["status"], response["status"]) == (HALF, "incomplete", "incomplete")

    result = {"type": "function_call_output", "call_id": item["call_id"], "output": "invalid arguments"}
    answer = await apis.ask(RESPONSES, responses(item, result), "Sorry.")

    assert json.dumps(TAKEN) in apis.engine.prompts[-1]
    assert [told["kind"] for told in answer["codec"]["diagnostics"]] == ["history"]


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("stream", [False, True])
async def test_messages_shows_the_members_that_are_whole_and_takes_them_back(
    apis: Apis, eager: bool, stream: bool
) -> None:
    body = messages(eager=eager, max_tokens=LIMIT)
    if stream:
        chunks = await apis.events(MESSAGES, body, WHOLE)
        (block,) = [chunk["content_block"] for chunk in chunks if chunk["type"] == "content_block_start"]
        deltas = [chunk["delta"] for chunk in chunks if chunk["type"] == "content_block_delta"]
        written = "".join(delta["partial_json"] for delta in deltas)
        assert written == (HALF if eager else '{"path": "a, b.txt"}')
        (reason,) = [chunk["delta"]["stop_reason"] for chunk in chunks if chunk["type"] == "message_delta"]
        block = {**block, "input": written if eager else json.loads(written)}
    else:
        message = await apis.ask(MESSAGES, body, WHOLE)
        (block,), reason = message["content"], message["stop_reason"]
        assert block["input"] == {"path": "a, b.txt"}
    assert (block["type"], block["name"], reason) == ("tool_use", "write", "max_tokens")

    result = {"type": "tool_result", "tool_use_id": block["id"], "content": "no text", "is_error": True}
    turns = ({"role": "assistant", "content": [block]}, {"role": "user", "content": [result]})
    await apis.ask(MESSAGES, messages(*turns), "Sorry.")

    taken = TAKEN if stream and eager else {"path": "a, b.txt"}
    assert json.dumps(taken) in apis.engine.prompts[-1]


@pytest.mark.parametrize(
    "arguments", ["not JSON", "{'a': 1}", '{"a": "x\ny"}', "[1", '{"a": NaN}', "null", "[1]", "7", ""]
)
async def test_apis_take_the_same_arguments_back_and_the_model_reads_the_same(apis: Apis, arguments: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": arguments}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    item = {"type": "function_call", "call_id": "c1", "name": "write", "arguments": arguments}
    block = {"type": "tool_use", "id": "c1", "name": "write", "input": arguments}
    results = (
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {"type": "function_call_output", "call_id": "c1", "output": "done"},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "done"}]},
    )

    await apis.ask(CHAT, chat(said, results[0]), "Well.")
    await apis.ask(RESPONSES, responses(item, results[1]), "Well.")
    await apis.ask(MESSAGES, messages({"role": "assistant", "content": [block]}, results[2]), "Well.")

    first, second, third = apis.engine.prompts
    assert first == second == third


@pytest.mark.parametrize("value", [{"ok": True, "n": [1, 2]}, 7, False, None, {"type": "Feature", "geometry": None}])
async def test_result_that_is_a_json_value_is_its_text(apis: Apis, value: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "write", "arguments": {"path": "a"}}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    item = {"type": "function_call", "call_id": "c1", "name": "write", "arguments": {"path": "a"}}
    block = {"type": "tool_use", "id": "c1", "name": "write", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": value}

    await apis.ask(CHAT, chat(said, {"role": "tool", "tool_call_id": "c1", "content": value}), "Well.")
    await apis.ask(
        RESPONSES, responses(item, {"type": "function_call_output", "call_id": "c1", "output": value}), "Well."
    )
    turns = ({"role": "assistant", "content": [block]}, {"role": "user", "content": [result]})
    await apis.ask(MESSAGES, messages(*turns), "Well.")

    written = "" if value is None else json.dumps(value)
    assert [f"<|im_start|>tool\n{written}<|im_end|>" in prompt for prompt in apis.engine.prompts] == [True] * 3


async def test_assistant_without_content_is_taken_by_all(apis: Apis) -> None:
    again = {"role": "user", "content": "again"}
    silent = {"role": "assistant", "content": None}

    await apis.ask(CHAT, chat(silent, again), "Well.")
    await apis.ask(RESPONSES, responses({"type": "message", **silent}, again), "Well.")
    await apis.ask(MESSAGES, messages(silent, again), "Well.")
