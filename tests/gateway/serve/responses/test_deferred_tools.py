"""Deferred tools of `/v1/responses`: searched here or by the client, in the shapes of OpenAI's types."""

import json
from collections.abc import AsyncGenerator, Callable
from itertools import pairwise
from typing import Any

import pytest

from gateway.serve.responses.response_tools import add_found, read_tools

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
CITY: Json = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER: Json = {
    "type": "function",
    "name": "weather",
    "description": "Tells whether it rains",
    "parameters": CITY,
    "strict": False,
    "defer_loading": True,
}
READ: Json = {**WEATHER, "name": "read", "description": "Reads a file"}
DISK: Json = {"type": "namespace", "name": "disk", "description": "Of the disk", "tools": [READ]}
HOSTED: Json = {"type": "tool_search"}
BY_CLIENT: Json = {"type": "tool_search", "execution": "client", "description": "Finds tools", "parameters": CITY}
USER: Json = {"role": "user", "content": "And now?"}


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
async def open_stage(responses_stage: Callable[..., Any]) -> AsyncGenerator[Any]:
    async with responses_stage() as opened:
        yield opened


@pytest.fixture
def stage(open_stage: Any) -> Any:
    open_stage.reset()
    return open_stage


def prompts(stage: Any) -> list[str]:
    return list(stage.engine.prompts)


@pytest.mark.parametrize(
    ("query", "name", "namespace"), [("whether it rains", "weather", None), ("a file", "read", "disk")]
)
async def test_search_that_the_gateway_runs_is_two_items_and_goes_on_from_the_cache(stage, query, name, namespace):
    asked = {"tools": [HOSTED, WEATHER, DISK], "input": [USER]}
    model_name = name if namespace is None else f"{namespace}__{name}"
    first = await stage.ask(call("tool_search", query=query), call(model_name, city="Bern"), **asked)

    search, found, made = first["output"]
    assert (search["type"], search["execution"], search["call_id"]) == ("tool_search_call", "server", None)
    assert search["arguments"] == {"query": query}
    inside = found["tools"] if namespace is None else found["tools"][0]["tools"]
    assert [each["name"] for each in inside] == [name]
    assert (made["type"], made["name"], made.get("namespace")) == ("function_call", name, namespace)

    output = {"type": "function_call_output", "call_id": made["call_id"], "output": "Rain."}
    await stage.ask("It is so.", tools=asked["tools"], input=[USER, *first["output"], output])

    one, two, three = prompts(stage)
    assert "Tells whether it rains" not in one
    assert "Reads a file" not in one
    assert two.startswith(one)
    assert three.startswith(two)


async def test_call_of_a_tool_that_was_not_found_is_no_call_for_the_client(stage):
    says = (call("weather"), call("weather", city="Bern"))
    events = await stage.events(*says, tools=[HOSTED, WEATHER], input=[USER])

    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["mcp_call", "function_call"]
    assert "Call it again" in done[0]["error"]["message"]
    assert done[1]["arguments"] == '{"city": "Bern"}'


async def test_stream_of_a_search_has_the_events_of_openais_types(stage):
    events = await stage.events(
        call("tool_search", query="rains"), call("weather"), tools=[HOSTED, WEATHER], input=[USER]
    )

    done = [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"]
    assert done == ["tool_search_call", "tool_search_output", "function_call"]


@pytest.mark.parametrize("listed", [True, False])
async def test_search_that_the_client_runs_loads_what_its_output_holds(stage, listed):
    """As Codex does it: the definitions come in the output, and the list of tools never changes."""
    tools = [BY_CLIENT, *([WEATHER] if listed else [])]
    first = await stage.ask(call("tool_search", city="Bern"), tools=tools, input=[USER])
    (search,) = first["output"]
    assert (search["type"], search["execution"], search["arguments"]) == (
        "tool_search_call",
        "client",
        {"city": "Bern"},
    )

    output = {
        "type": "tool_search_output",
        "call_id": search["call_id"],
        "execution": "client",
        "status": "completed",
        "tools": [WEATHER, DISK],
    }
    second = await stage.ask(call("disk__read", city="x"), tools=tools, input=[USER, search, output])
    (made,) = second["output"]
    assert (made["name"], made["namespace"]) == ("read", "disk")
    third = {"type": "function_call_output", "call_id": made["call_id"], "output": "Rain."}
    await stage.ask("It is so.", tools=tools, input=[USER, search, output, made, third])

    one, two, three = prompts(stage)
    assert "Reads a file" not in one
    assert two.startswith(one)
    assert three.startswith(two)
    assert three.count("Reads a file") == three.count("Tells whether it rains") == 1


async def test_compaction_without_tools_continues_from_the_cache(stage):
    """As Codex compacts with other providers: the whole input and a short prompt, and no tools."""
    plain = {**WEATHER, "defer_loading": False}
    first = await stage.ask("It is so.", tools=[plain], input=[USER])
    await stage.ask("A summary.", tools=[], input=[USER, *first["output"], {**USER, "content": "Sum it up."}])

    one, two = prompts(stage)
    assert two.startswith(one)


async def test_compaction_without_tools_defines_no_search_for_those_that_were_found(stage):
    tools = [BY_CLIENT]
    first = await stage.ask(call("tool_search", city="rain"), tools=tools, input=[USER])
    (search,) = first["output"]
    output = {"type": "tool_search_output", "call_id": search["call_id"], "execution": "client", "tools": [WEATHER]}
    second = await stage.ask("It is so.", tools=tools, input=[USER, search, output])
    history = [USER, search, output, *second["output"]]
    await stage.ask("A summary.", tools=[], input=[*history, {**USER, "content": "Sum it up."}])

    _, two, three = prompts(stage)
    assert three.startswith(two)
    assert "Tells whether it rains" in two
    assert "codec_search_tools" not in three


async def test_tool_that_codex_compacted_away_is_found_again_by_its_search(stage):
    """Behind Codex's own summary there are no calls, results and found tools; its search stays."""
    tools = [BY_CLIENT]
    summary = {**USER, "content": "Another model began this task. Its summary: it called weather."}
    says = (call("weather", city="Bern"), call("tool_search", city="rain"))
    first = await stage.ask(*says, tools=tools, input=[USER, summary])
    guessed, search = first["output"]
    output = {"type": "tool_search_output", "call_id": search["call_id"], "execution": "client", "tools": [WEATHER]}
    found = [USER, summary, *first["output"], output]
    second = await stage.ask(call("weather", city="Bern"), tools=tools, input=found)

    assert (guessed["type"], guessed["status"]) == ("mcp_call", "failed")
    assert "the tools that may be called are" in guessed["error"]["message"]
    assert "tool_search" in guessed["error"]["message"]
    assert [item["type"] for item in second["output"]] == ["function_call"]
    assert all(after.startswith(before) for before, after in pairwise(prompts(stage)))


async def test_search_sent_to_a_gateway_that_never_ran_it_loads_its_tools(stage):
    search = {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"query": "rain"}}
    found = {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [WEATHER]}
    said = {"role": "assistant", "content": "Found."}
    answer = await stage.ask(call("weather"), tools=[HOSTED, WEATHER, DISK], input=[USER, search, found, said, USER])

    assert [item["type"] for item in answer["output"]] == ["function_call"]
    assert prompts(stage)[-1].count("Tells whether it rains") == 1


@pytest.mark.parametrize(
    "item",
    [
        {"type": "tool_search_output", "execution": "server", "tools": "x"},
        {"type": "tool_search_output", "execution": "server", "tools": [1, {"type": "namespace", "tools": [3]}]},
        {"type": "tool_search_call", "execution": "server", "arguments": [["x"]]},
        {"type": "tool_search_call"},
    ],
)
async def test_odd_items_of_searches_cost_nothing_else(stage, item):
    answer = await stage.ask("It is so.", tools=[HOSTED, WEATHER], input=[item, USER])

    assert answer["status"] == "completed"


ALLOWED = [{"type": "tool_search"}, {"type": "namespace", "name": "disk"}]


async def test_search_and_namespaces_can_be_allowed(stage):
    choice = {"type": "allowed_tools", "mode": "auto", "tools": ALLOWED}
    says = (call("tool_search", query="file"), "So.")
    answer = await stage.ask(*says, tools=[HOSTED, DISK], input=[USER], tool_choice=choice)

    assert answer["output"][0]["type"] == "tool_search_call"


def test_tools_that_many_searches_found_again_stay_found() -> None:
    properties = {f"p{n}": {"type": "string"} for n in range(300)}
    large = {**WEATHER, "parameters": {"type": "object", "properties": properties}}
    tools = read_tools([BY_CLIENT], (), frozenset)

    add_found(tools, [large] * 100)

    assert (tools.hidden, tools.ignored) == ({"weather"}, [])
