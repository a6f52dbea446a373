"""Tools that are too many for the context: a search in their place, and calls of what was found."""

import json

import pytest

from gateway.agent import AnswerOptions, ToolChoice, ToolScope
from gateway.agent.events import ToolFinished
from gateway.config import LimitsConfig
from gateway.errors import RequestInvalid
from gateway.proxy.caller import ANYBODY
from gateway.proxy.tool_search import CALL, SEARCH
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed

pytestmark = pytest.mark.anyio

QUESTION = [{"role": "user", "content": "What is it?"}]
REQUIRED = ToolChoice("required")


def written(tool: str, **arguments: object) -> str:
    call = json.dumps({"name": tool, "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


def names(tools) -> list[str]:
    return [tool.name for tool in tools]


@pytest.mark.parametrize(
    ("search", "context", "searched"),
    [
        ("auto", 100_000, False),
        ("auto", 100, True),
        (True, 100_000, True),
        (False, 100, False),
    ],
)
async def test_conversation_is_told_of_a_search_where_definitions_take_more_than_a_quarter_of_the_context(
    open_runner, search, context, searched
):
    async with open_runner(LimitsConfig(), "It is 42.", tool_search=search) as (runner, _):
        defined, deferred = runner.offers.divide(runner.offers.entries(ANYBODY), context)

    assert (names(defined), [*deferred]) == (([], ["up__say"]) if searched else (["up__say"], []))


async def test_tool_that_the_request_names_is_told_of_besides_the_search(open_runner):
    async with open_runner(LimitsConfig(), "It is 42.", tool_search=True) as (runner, _):
        entries = runner.offers.entries(ANYBODY)
        assert names(runner.offers.divide(entries, 100, named=("up__say",))[0]) == ["up__say"]


async def test_model_finds_a_tool_and_calls_it_as_if_by_its_own_name(open_stage):
    found = written("up__say")
    async with open_stage(written(SEARCH, query="say"), found, "It is 42.", tool_search=True, context=40_000) as stage:
        conversation = await stage.agent.open(QUESTION)
        offered = names(conversation.asked.tools)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    search, called = stage.of(ToolFinished)
    assert offered == [SEARCH]
    assert search.found == ("up__say",)
    assert (called.name, called.arguments, called.text, called.is_error) == ("up__say", "{}", "It is 42.", False)


@pytest.mark.parametrize("name", ["nope", CALL])
async def test_call_of_what_no_search_would_find_is_an_error_that_names_the_search(open_stage, name):
    async with open_stage(written(name), "Sorry.", tool_search=True, context=40_000) as stage:
        await stage.agent.answer(await stage.agent.open(QUESTION), AnswerOptions(), stage.listen)

    (called,) = stage.of(ToolFinished)
    assert called.is_error
    assert SEARCH in called.text


async def test_conversation_that_does_not_fit_says_whose_definitions_take_its_room(open_stage):
    heavy = ToolSpec("paint", "Paint it. " * 400, {"type": "object"})
    async with open_stage(context=1000, defer_client_tools="never") as stage:
        with pytest.raises(
            RequestInvalid, match=r"larger context.* The definitions of the client's tools take about"
        ) as clients:
            await stage.agent.open(QUESTION, client_tools=[heavy])
    async with open_stage(context=20) as stage:
        with pytest.raises(
            RequestInvalid, match=r"larger context.* The definitions of the gateway's tools take about"
        ) as ours:
            await stage.agent.open(QUESTION)

    # What the operator can do about the gateway's tools does not help against the client's.
    assert not any(word in clients.value.message for word in ("include", "tool_search"))
    assert all(word in ours.value.message for word in ("include", "tool_search"))
    assert "client's" not in ours.value.message


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        (None, ["up__say"]),
        ({}, []),
        ({"up": None}, ["up__say"]),
        ({"up": frozenset({"say"})}, ["up__say"]),
        ({"up": frozenset({"up__say"})}, ["up__say"]),
        ({"up": frozenset({"other"})}, []),
        ({"other": None}, []),
    ],
)
async def test_request_sees_the_servers_and_tools_that_it_asks_for(open_runner, servers, expected):
    async with open_runner(LimitsConfig(), "It is 42.") as (runner, _):
        entries = runner.offers.entries(ANYBODY)
        assert names(runner.offers.divide(entries, 100_000, scope=ToolScope(servers))[0]) == expected


async def test_calls_that_are_told_but_not_shown_are_events_and_no_part_of_the_remembered_answer(open_stage):
    async with open_stage(written("up__say"), "It is 42.") as stage:
        conversation = await stage.agent.open(QUESTION)
        await stage.agent.answer(conversation, AnswerOptions(tell_calls=True), stage.listen)

    assert [call.name for call in stage.of(CallClosed)] == ["up__say"]
    assert conversation.lived.shown.calls == ()


async def test_call_that_is_required_is_so_until_something_else_than_a_search_was_called(open_stage):
    search, both = written(SEARCH, query="say"), written(SEARCH, query="say") + "\n" + written("up__say")
    async with open_stage(search, both, "It is 42.", tool_search=True, context=40_000) as stage:
        conversation = await stage.agent.open(QUESTION, choice=REQUIRED)
        await stage.agent.answer(conversation, AnswerOptions(REQUIRED, parallel=True), stage.listen)

    assert [event.name for event in stage.of(ToolFinished)] == [SEARCH, SEARCH, "up__say"]
    assert [asked.grammar is not None for asked in stage.engine.asked] == [True, True, False]
