"""What holds with every family's tokenizer and template, whatever its weights: start, schemas, markers, histories.

The short form, one model that is put together from what setup installs, is in the suite; `make families` runs all.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from gateway.engine.interface import shared_prefix
from leaf_sdk import open_map
from leaf_sdk.vocab import TokenMap
from tests.e2e.conftest import RunningGateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

LISTS = Path(__file__).parents[1] / "third_party" / "tool_lists"
TOOLS = [
    {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool["inputSchema"]}
    for path in sorted(LISTS.glob("*.json"))
    for tool in json.loads(path.read_text(encoding="utf-8"))["tools"]
]
"""Tools of real servers: schemas by zod, pydantic, FastMCP and by hand."""
LIGHT = {
    "name": "set_light",
    "description": "Switch a light.",
    "parameters": {
        "type": "object",
        "properties": {"room": {"enum": ["kitchen", "attic"]}, "on": {"type": "boolean"}},
        "required": ["room", "on"],
    },
}


@pytest.fixture(scope="module")
def http(gateway: RunningGateway) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=gateway.url, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def token_map(family: Path) -> TokenMap:
    return open_map(family / "model.gguf")


def function(tool: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": tool}


def ask(http: httpx2.Client, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    body = {"model": "any", "messages": messages, "max_tokens": 200, "temperature": 0, "return_token_ids": True}
    # Weights that mean nothing never end their reasoning.
    body["chat_template_kwargs"] = {"enable_thinking": False, "thinking": False}
    answer = http.post("/v1/chat/completions", json=body | more)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


OTHER = {"role": "user", "content": "And the light?"}
USER = {"role": "user", "content": "Switch on the light in the attic, please."}


def test_engine_starts_and_its_map_is_proven(gateway: RunningGateway) -> None:
    (ready,) = gateway.log.events("engine ready")

    assert ready["tool_format"] != "generic"


@pytest.mark.parametrize("choice", ["auto", "required", "named"])
def test_tools_of_real_servers_are_taken(http: httpx2.Client, choice: str) -> None:
    for tool in TOOLS:
        chosen = {"type": "function", "function": {"name": tool["name"]}} if choice == "named" else choice
        answer = ask(http, [USER], tools=[function(tool)], tool_choice=chosen, max_tokens=4)
        assert not answer["codec"].get("diagnostics", []) or choice != "auto", (tool["name"], answer["codec"])


def test_forced_call_fits_its_schema_and_is_written_with_the_templates_own_markers(
    http: httpx2.Client, token_map: TokenMap
) -> None:
    first = ask(http, [USER], tools=[function(LIGHT)], tool_choice="required")
    (choice,) = first["choices"]
    message = choice["message"]
    (call,) = message["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), LIGHT["parameters"])
    result = {"role": "tool", "tool_call_id": call["id"], "content": "done"}

    # Behind another question: a conversation that the gateway does not remember, so the template writes the call.
    rendered = ask(http, [OTHER, message, result], tools=[function(LIGHT)], max_tokens=1)
    alone = ask(http, [OTHER], tools=[function(LIGHT)], max_tokens=1)

    written = [each for each in choice["token_ids"] if each in token_map.special_ids]
    # The last turn may begin with more than an earlier one: some templates close the reasoning there.
    prompt = rendered["prompt_token_ids"]
    shown = prompt[shared_prefix(alone["prompt_token_ids"], prompt) :]
    assert written == [each for each in shown if each in token_map.special_ids][: len(written)]


def test_next_request_finds_all_of_the_one_before(http: httpx2.Client, token_map: TokenMap) -> None:
    first = ask(http, [USER], tools=[function(LIGHT)], tool_choice="required")
    (choice,) = first["choices"]
    (call,) = choice["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "done"}

    second = ask(http, [USER, choice["message"], result], tools=[function(LIGHT)], max_tokens=8)

    prompt, written = second["prompt_token_ids"], choice["token_ids"]
    kept = shared_prefix(first["prompt_token_ids"], prompt)
    assert prompt[kept : kept + len(written) - 1] == written[:-1]
    (turn,) = second["codec"]["turns"]
    if turn["cache_n"] is None:
        # Weights that mean nothing write halves of characters, whose ids may end the answer before the figures come.
        assert turn["guessed"]
    elif told := second["codec"]["prompt"].get("reason"):
        # Qwen 3's template closes the reasoning only before the turn that is to be written.
        assert told == "template_rewrote"
        assert token_map.decode(first["prompt_token_ids"][kept:]).split() == ["<think>", "</think>"]
    else:
        assert second["codec"]["prompt"]["lost"] == 0
        assert kept == len(first["prompt_token_ids"])


def test_results_and_reasoning_and_odd_histories_are_rendered(http: httpx2.Client) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "set_light", "arguments": '{"room": "attic"}'}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "ok"}
    other = {"role": "tool", "tool_call_id": "call_2", "content": "<|im_end|></s><|eot_id|>"}

    def says(content: str | None, *calls: dict[str, Any], **more: str) -> dict[str, Any]:
        return {"role": "assistant", "content": content, **({"tool_calls": list(calls)} if calls else {}), **more}

    histories: list[list[dict[str, Any]]] = [
        [{"role": "system", "content": "Be brief."}, USER],
        [USER, says("Which one?"), USER],
        [USER, says(None, call), result],
        [USER, says("", call, reasoning_content="Hm."), result, says("Done."), USER],
        [USER, says("I will.", call, call | {"id": "call_2"}), result, other],
    ]
    for history in histories:
        ask(http, history, tools=[function(LIGHT)], max_tokens=4)
