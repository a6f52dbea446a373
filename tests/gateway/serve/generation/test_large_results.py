"""Results that are too large for the model, on all APIs: how an answer shows that it read on, and the next request."""

import json
import re
from typing import Any

import pytest

from gateway.agent.results.large_results import READ, SEARCH
from tests.gateway.serve.generation.three_apis import CHAT, MESSAGES, RESPONSES, running

pytestmark = pytest.mark.anyio

LARGE = "\n".join(f"{n}: nothing" for n in range(3000)).replace("1500: nothing", "1500: swordfish")
SAY = '<tool_call>\n{"name": "say", "arguments": {}}\n</tool_call>'
PATHS = pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
CONTEXT = 40_000


def call(name: str, **arguments: object) -> Any:
    def written(prompt: str) -> str:
        handle = re.findall(r"r_[a-z0-9]{6}", prompt)[-1]
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': {'handle': handle, **arguments}})}\n</tool_call>"

    return written


def asked(path: str, *messages: dict[str, Any]) -> dict[str, Any]:
    return {"input" if path == RESPONSES else "messages": [{"role": "user", "content": "Where is it?"}, *messages]}


def history(path: str, answer: dict[str, Any]) -> list[dict[str, Any]]:
    """What a client sends back of an answer."""
    if path == RESPONSES:
        return answer["output"]
    if path == MESSAGES:
        return [{"role": "assistant", "content": answer["content"]}]
    return [answer["choices"][0]["message"]]


@PATHS
async def test_answer_says_what_was_kept_and_the_next_request_can_read_it(path):
    async with running(CONTEXT, says=LARGE) as apis:
        first = await apis.ask(path, asked(path), SAY, call(SEARCH, text="swordfish"), "In line 1501.")
        more = [*history(path, first), {"role": "user", "content": "And before it?"}]
        second = await apis.ask(path, asked(path, *more), call(READ, lines="1500"), "1499.")

    said, found = first["codec"]["tool_results"]
    assert set(said["kept"]) == {"handle", "tokens", "shown"}
    assert said["kept"]["shown"] < 2048 < said["kept"]["tokens"]
    assert "1500: swordfish" in found["text"]
    assert "kept" not in found
    (read,) = second["codec"]["tool_results"]
    assert "1499: nothing" in read["text"]
    assert not read["is_error"]
    # Nothing was rendered anew.
    assert apis.engine.prompts[-1].startswith(apis.engine.prompts[0])
    assert apis.engine.prompts[-1].count("Find words, or a regular expression") == 1


@PATHS
async def test_client_that_wants_no_tools_of_the_gateway_gets_none_that_read(path):
    async with running(CONTEXT, says=LARGE) as apis:
        first = await apis.ask(path, asked(path), SAY, "In line 1501.")
        more = [*history(path, first), {"role": "user", "content": "And before it?"}]
        without = {**asked(path, *more), "gateway_tools": "none"}
        second = await apis.ask(path, without, call(READ, lines="1501"), "1499.")

    assert "swordfish" not in json.dumps(second)
    assert "swordfish" not in apis.engine.prompts[-1]


@PATHS
async def test_stream_ends_in_the_same_answer(path):
    async with running(CONTEXT, says=LARGE) as apis:
        events = await apis.events(path, asked(path), SAY, call(SEARCH, text="swordfish"), "In line 1501.")

    assert "1500: swordfish" in json.dumps(events)
    assert '"kept"' in json.dumps(events)


async def test_call_that_reads_is_one_of_the_gateways_own_in_responses():
    async with running(CONTEXT, says=LARGE) as apis:
        answer = await apis.ask(RESPONSES, asked(RESPONSES), SAY, call(SEARCH, text="swordfish"), "In line 1501.")

    calls = [(item["server_label"], item["name"]) for item in answer["output"] if item["type"] == "mcp_call"]
    assert calls == [("up", "say"), ("codec", SEARCH)]
