"""Deferred tools of Anthropic's API with its own client: searched here, or by a tool of the client's."""

import json
from typing import Any

import pytest

pytestmark = pytest.mark.anyio


def tool(name: str, description: str, **more: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"place": {"type": "string"}}}
    return {"name": name, "description": description, "input_schema": schema, **more}


WEATHER = tool("get_weather", "Tells the weather of a place", defer_loading=True)
FILES = tool("list_files", "Lists the files of a folder", defer_loading=True)
LOOK = tool("look_up", "Looks for tools")
ASK = {"role": "user", "content": "Will it rain?"}
BODY: dict[str, Any] = {"model": "any", "max_tokens": 500}
PATTERN = {"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}
WORDS = {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}


def written(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("search", "query"), [(PATTERN, {"pattern": "weather|forecast"}), (WORDS, {"query": "the weather"})]
)
async def test_search_that_the_gateway_runs_is_shown_and_sent_back_as_anthropics_own(
    site, search, query, streams
) -> None:
    asked = {**BODY, "tools": [search, WEATHER, FILES], "messages": [ASK]}
    site.says(written(search["name"], **query), written("get_weather", place="Bern"))
    if streams:
        async with site.client.beta.messages.stream(**asked) as stream:
            message = await stream.get_final_message()
    else:
        message = await site.client.beta.messages.create(**asked)

    use, found, call = message.content
    assert (use.type, use.name, use.input) == ("server_tool_use", search["name"], query)
    assert use.id.startswith("srvtoolu_")
    assert (found.type, found.tool_use_id) == ("tool_search_tool_result", use.id)
    assert [each.tool_name for each in found.content.tool_references] == ["get_weather"]
    assert (call.type, call.name, call.input, message.stop_reason) == (
        "tool_use",
        "get_weather",
        {"place": "Bern"},
        "tool_use",
    )
    assert FILES["description"] not in "".join(site.engine.prompts)

    result = {"type": "tool_result", "tool_use_id": call.id, "content": "Rain."}
    echoed = [block.model_dump() for block in message.content]
    site.says("It will.")
    asked["messages"] = [ASK, {"role": "assistant", "content": echoed}, {"role": "user", "content": [result]}]
    answer = await site.client.beta.messages.create(**asked)

    before, after = site.engine.prompts[-2:]
    assert after.startswith(before)
    assert after.count(WEATHER["description"]) == 1
    assert [block.type for block in answer.content] == ["text"]


async def test_search_that_is_sent_back_to_a_gateway_that_never_ran_it_loads_its_tools(site) -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": PATTERN["name"], "input": {"pattern": "weather"}}
    found = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "get_weather"}],
    }
    result = {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found}
    history = [ASK, {"role": "assistant", "content": [use, result, {"type": "text", "text": "Found."}]}, ASK]
    site.says(written("get_weather", place="Bern"))

    message = await site.client.beta.messages.create(**BODY, tools=[PATTERN, WEATHER, FILES], messages=history)

    assert [block.type for block in message.content] == ["tool_use"]
    assert site.engine.prompts[-1].count(WEATHER["description"]) == 1


async def test_tools_that_a_clients_own_search_refers_to_can_be_called(site) -> None:
    """As Claude Code does it: what its search found is inserted between the tools that it sent before."""
    site.says(written("look_up"), written("get_weather", place="Bern"))
    files = FILES | {"defer_loading": False}
    first = await site.client.beta.messages.create(**BODY, tools=[files, LOOK], messages=[ASK])
    reference = {"type": "tool_reference", "tool_name": "get_weather"}
    result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": [reference]}
    echoed = {"role": "assistant", "content": [block.model_dump() for block in first.content]}
    second = await site.client.beta.messages.create(
        **BODY,
        tools=[files, WEATHER, LOOK],
        messages=[ASK, echoed, {"role": "user", "content": [result]}],
    )

    before, after = site.engine.prompts[-2:]
    assert after.startswith(before)
    assert after.count(WEATHER["description"]) == 1
    assert second.content[0].name == "get_weather"


async def test_system_message_adds_a_tool_and_the_removal_of_one_is_named(site) -> None:
    addition = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "get_weather"}}
    removal = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "list_files"}}
    site.says(written("get_weather"))
    body = {**BODY, "tools": [LOOK, WEATHER], "messages": [ASK, {"role": "system", "content": [addition, removal]}]}

    message = (await site.post(body)).json()

    assert message["content"][0]["name"] == "get_weather"
    assert message["codec"]["ignored"] == ["messages: tool_removal"]


async def test_additions_of_other_forms_are_named(site) -> None:
    kinds = ("tool_definition", "mcp_tool_reference", "mcp_toolset_reference")
    blocks = [{"type": "tool_addition", "tool": {"type": kind, "name": "get_weather"}} for kind in kinds]
    site.says("Hello.")
    body = {**BODY, "tools": [LOOK, WEATHER], "messages": [ASK, {"role": "system", "content": blocks}]}

    message = (await site.post(body)).json()

    assert message["codec"]["ignored"] == [f"messages: tool_addition.{kind}" for kind in kinds]
    assert WEATHER["description"] not in site.engine.prompts[-1]


async def test_answer_says_how_many_tools_are_deferred(site) -> None:
    site.says("Hello.")
    message = (await site.post({**BODY, "tools": [LOOK, WEATHER, FILES], "messages": [ASK]})).json()

    (note,) = message["codec"]["diagnostics"]
    assert (note["kind"], note["message"].split()[0]) == ("deferred", "2")
    assert "ignored" not in message["codec"]


async def test_chat_defers_tools_too_and_the_gateway_searches(site) -> None:
    functions = [
        {"type": "function", "function": {"name": each["name"], "description": each["description"], "parameters": {}}}
        for each in (WEATHER, FILES)
    ]
    tools = [{**functions[0], "defer_loading": True}, {**functions[1], "defer_loading": True}]
    site.says(written("codec_search_tools", query="weather"), written("get_weather"))

    answer = (await site.post({**BODY, "tools": tools, "messages": [ASK]}, "/v1/chat/completions")).json()

    assert WEATHER["description"] not in site.engine.prompts[-2]
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "get_weather"
    assert [each["name"] for each in answer["codec"]["tool_results"]] == ["codec_search_tools"]
