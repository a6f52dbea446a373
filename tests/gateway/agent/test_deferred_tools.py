"""Tools whose definitions are not in the prompt until the model, or a tool of its client, finds them."""

import json
from typing import Any

import pytest

from bench.tool_search.definitions import as_client
from gateway.agent import AnswerOptions, Deferral
from gateway.agent.calls.tool_finder import OURS
from gateway.agent.events import ToolFinished
from gateway.agent.generate.generation_options import ToolChoice
from gateway.context.memory import FOUND_TOOLS
from gateway.engine.interface import Message
from gateway.proxy.caller import Principal
from gateway.proxy.tool_search import SEARCH
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content
from leaf_sdk.testing import tiny_map

from .test_memory import QUESTION, begins, prompts

pytestmark = pytest.mark.anyio

TINY = tiny_map()
TOOLS = [
    ToolSpec("paint", "Paint a wall in a colour", {"type": "object", "properties": {"colour": {"type": "string"}}}),
    ToolSpec("sing", "Sing a tune aloud", {"type": "object", "properties": {"tune": {"type": "string"}}}),
    ToolSpec("look_up", "Looks for tools", {"type": "object"}),
]
PAINT, SING, LOOK_UP = TOOLS
DEFERRED = Deferral({"paint", "sing"}, OURS)
BY_CLIENT = Deferral({"paint", "sing"})
MORE: Message = {"role": "user", "content": "And then?"}


def written(tool: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


async def answered(stage: Any, messages: list[Message], deferral: Deferral = DEFERRED, **options: Any) -> Message:
    stage.events.clear()
    tools = options.pop("tools", TOOLS)
    conversation = await stage.agent.open(
        messages,
        client_tools=tools,
        deferral=deferral,
        principal=Principal("a"),
        choice=options.get("choice", ToolChoice()),
    )
    await stage.agent.answer(conversation, AnswerOptions(**options), stage.listen)
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in stage.of(CallClosed)
    ]
    content = "".join(event.text for event in stage.of(Content))
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def results_of(answer: Message, content: str, **more: Any) -> list[Message]:
    return [{"role": "tool", "tool_call_id": call["id"], "content": content, **more} for call in answer["tool_calls"]]


def shown(stage: Any) -> list[str]:
    return [TINY.decode(prompt) for prompt in prompts(stage)]


GUESSES = [
    written("paint_wall", colour="red"),
    '{"name": "paint_wall", "arguments": {"colour": "red"}}',
    'I will.\n\n```json\n{"name": "paintWall", "arguments": {"colour": "red"}}\n```',
    '{"name": "paint", "arguments": {}}',
    written("do_it", what="give the wall a colour"),
]


@pytest.mark.parametrize("guess", GUESSES)
async def test_call_of_a_tool_that_does_not_exist_is_answered_with_those_that_it_may_mean(open_stage, guess):
    async with open_stage(guess, written("paint", colour="red"), context=9000) as stage:
        answer = await answered(stage, QUESTION)

    first, second = shown(stage)
    assert second[len(first) :].count(PAINT.description) == 1
    assert SING.description not in second
    assert [call["function"]["name"] for call in answer["tool_calls"]] == ["paint"]
    assert stage.of(ToolFinished)[0].found == ("paint",)


async def test_call_of_a_tool_that_means_none_names_the_search(open_stage):
    async with open_stage(written("fly_away"), "No.", context=9000) as stage:
        answer = await answered(stage, QUESTION)

    assert f"Find tools with '{SEARCH}'" in shown(stage)[1]
    assert answer["content"] == "No."


@pytest.mark.parametrize(
    "said",
    [
        '{"name": "Ann", "arguments": {"age": 7}}',
        '{"name": "paint_wall", "colour": "red"}',
        'Such as {"name": "paint_wall", "arguments": {}} or so.',
    ],
)
async def test_json_that_names_no_tool_stays_content(open_stage, said):
    async with open_stage(said, context=9000) as stage:
        answer = await answered(stage, QUESTION)

    assert answer == {"role": "assistant", "content": said}


async def test_json_that_may_name_a_tool_stays_content_where_none_is_deferred(open_stage):
    async with open_stage(GUESSES[1], context=9000) as stage:
        answer = await answered(stage, QUESTION, Deferral(set(), None))

    assert answer == {"role": "assistant", "content": GUESSES[1]}


async def test_deferred_tool_is_defined_where_the_search_found_it_and_then_called_by_its_own_name(open_stage):
    async with open_stage(written(SEARCH, query="colour"), written("paint", colour="red"), context=9000) as stage:
        answer = await answered(stage, QUESTION)

    first, second = shown(stage)
    assert PAINT.description not in first
    assert begins(*reversed(prompts(stage)))
    assert second[len(first) :].count(PAINT.description) == 1
    assert SING.description not in second
    assert [call["function"]["name"] for call in answer["tool_calls"]] == ["paint"]
    assert [event.found for event in stage.of(ToolFinished)] == [("paint",)]


async def test_found_tool_stays_found_in_later_requests_and_is_not_defined_again(open_stage):
    texts = (written(SEARCH, query="colour"), "It is so.", written("paint"))
    async with open_stage(*texts, context=9000) as stage:
        first = await answered(stage, QUESTION)
        second = await answered(stage, [*QUESTION, first, MORE])
        before, after = prompts(stage)[-2:]

    assert second["tool_calls"][0]["function"]["name"] == "paint"
    assert begins(after, before)
    assert shown(stage)[-1].count(PAINT.description) == 1


async def test_call_of_a_tool_that_was_not_found_yet_is_answered_with_its_definition(open_stage):
    async with open_stage(written("paint"), written("paint", colour="red"), context=9000) as stage:
        answer = await answered(stage, QUESTION)

    (told,) = stage.of(ToolFinished)
    assert PAINT.description in told.text
    assert "Call it again" in told.text
    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == ['{"colour": "red"}']


async def test_call_that_the_client_is_not_to_make_is_not_shown_to_it_either(open_stage):
    async with open_stage(written("paint"), written("paint", colour="red"), context=9000) as stage:
        answer = await answered(stage, QUESTION, show_calls=True)

    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == ['{"colour": "red"}']


@pytest.mark.parametrize("content", ["paint", ""])
async def test_tool_that_the_clients_own_search_found_is_defined_behind_that_result(open_stage, content):
    async with open_stage(written("look_up"), written("paint"), "Done.", context=9000) as stage:
        first = await answered(stage, QUESTION, BY_CLIENT)
        found = results_of(first, content, **{FOUND_TOOLS: ["paint", "nonsense"]})
        second = await answered(stage, [*QUESTION, first, *found], BY_CLIENT)
        done = results_of(second, "Painted.")
        await answered(stage, [*QUESTION, first, *found, second, *done], BY_CLIENT)
        one, two, three = prompts(stage)

    assert SEARCH not in shown(stage)[0]
    assert second["tool_calls"][0]["function"]["name"] == "paint"
    assert begins(two, one)
    assert begins(three, two)
    assert shown(stage)[-1].count(PAINT.description) == 1


async def test_client_that_sends_only_found_tools_loses_nothing_when_it_inserts_them(open_stage):
    """As Claude Code does: an undiscovered tool is not in the list, a discovered one stands between the others."""
    async with open_stage(written("look_up"), "It is so.", context=9000) as stage:
        first = await answered(stage, QUESTION, BY_CLIENT, tools=[LOOK_UP])
        found = results_of(first, "", **{FOUND_TOOLS: ["sing"]})
        await answered(stage, [*QUESTION, first, *found], BY_CLIENT, tools=[SING, LOOK_UP])
        one, two = prompts(stage)

    assert begins(two, one)
    assert SING.description in shown(stage)[1]


async def test_required_tool_is_defined_although_it_is_deferred(open_stage):
    async with open_stage(written("paint"), context=9000) as stage:
        answer = await answered(stage, QUESTION, choice=ToolChoice.named("paint"))

    assert PAINT.description in shown(stage)[0]
    assert answer["tool_calls"][0]["function"]["name"] == "paint"


async def test_history_whose_search_is_forgotten_has_its_called_tools_defined_at_the_beginning(open_stage):
    call = {"id": "c1", "type": "function", "function": {"name": "paint", "arguments": "{}"}}
    turn = {"role": "assistant", "content": "", "tool_calls": [call]}
    history = [*QUESTION, turn, *results_of(turn, "Red.")]
    async with open_stage("Done.", context=9000) as stage:
        await answered(stage, history)

    assert PAINT.description in shown(stage)[0]
    assert SING.description not in shown(stage)[0]


@pytest.mark.parametrize(
    ("setting", "heavy", "deferred"),
    [("auto", 300, False), ("auto", 700, True), ("never", 300, False), ("always", 1, True)],
)
async def test_gateway_defers_tools_of_clients_that_defer_none_where_they_are_heavy(
    open_stage, setting, heavy, deferred
):
    # Fewer than one search returns are never deferred.
    long = [ToolSpec(f"t{n}", f"Paint wall {n}" + " well" * heavy, {"type": "object"}) for n in range(6)]
    async with open_stage("It is so.", context=9000, defer_client_tools=setting) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=long)

    assert (long[0].description in TINY.decode(conversation.ids)) is not deferred
    assert [each.kind for each in conversation.asked.diagnostics] == ["deferred"] * deferred
    if deferred:
        assert "agent.defer_client_tools" in conversation.asked.diagnostics[0].message


async def test_definitions_that_do_not_fit_a_result_are_named_and_not_cut(open_stage):
    many = [ToolSpec(f"paint_{n}", f"Paint a wall {n}. " * 200, {"type": "object"}) for n in range(4)]
    async with open_stage(
        written(SEARCH, query="paint a wall"), "It is so.", context=20_000, result_tokens=4000
    ) as stage:
        await answered(stage, QUESTION, Deferral({tool.name for tool in many}, OURS), tools=many)

    (search,) = stage.of(ToolFinished)
    whole = [tool for tool in many if tool.description in search.text]
    assert 0 < len(whole) < 4
    assert all(tool.name in search.text for tool in many)


async def test_search_without_a_hit_says_so(open_stage):
    async with open_stage(written(SEARCH, query="zebra"), "It is so.", context=9000) as stage:
        await answered(stage, QUESTION)

    (search,) = stage.of(ToolFinished)
    assert (search.is_error, search.found) == (False, ())
    assert "none of the 2 tools" in search.text


class Counted(dict[str, Any]):
    """A schema that counts how often it is read."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()

    def items(self) -> Any:
        self.reads += 1
        return super().items()


async def test_references_that_are_repeated_cost_no_further_reading_of_the_definition(open_stage):
    async def reads(references: int) -> int:
        schema = Counted(PAINT.parameters)
        call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        turn = {"role": "assistant", "content": "", "tool_calls": [call]}
        found = results_of(turn, "", **{FOUND_TOOLS: ["paint"] * references})
        async with open_stage("Done.", context=9000) as stage:
            tools = [ToolSpec("paint", PAINT.description, schema), SING, LOOK_UP]
            await answered(stage, [*QUESTION, *[turn, *found] * references], BY_CLIENT, tools=tools)
        return schema.reads

    assert await reads(1) == await reads(20) > 0


async def test_required_call_is_still_required_after_a_search(open_stage):
    choice = ToolChoice("required")
    async with open_stage(written(SEARCH, query="colour"), written("paint"), context=9000) as stage:
        await answered(stage, QUESTION, choice=choice)
        held = [request.grammar is not None for request in stage.engine.asked]

    assert held == [True, True]


async def test_definition_that_was_cut_counts_as_not_read(open_stage):
    async with open_stage(written(SEARCH, query="colour"), "It is so.", context=1050) as stage:
        conversation = await stage.agent.open(QUESTION, client_tools=TOOLS, deferral=DEFERRED)
        await stage.agent.answer(conversation, AnswerOptions(), stage.listen)

    assert "[cut:" in shown(stage)[-1]
    assert not conversation.has("paint")


@pytest.mark.parametrize("begin", [written(SEARCH, query="paint"), written("paint")])
async def test_tool_whose_definition_alone_is_longer_than_a_result_can_be_called_all_the_same(open_stage, begin):
    long = ToolSpec("paint", "Paint a wall. " * 200, PAINT.parameters)
    async with open_stage(begin, written("paint", colour="red"), context=9000, result_tokens=200) as stage:
        answer = await answered(stage, QUESTION, tools=[long, SING, LOOK_UP])

    assert [call["function"]["arguments"] for call in answer["tool_calls"]] == ['{"colour": "red"}']
    assert long.description in shown(stage)[-1]


async def test_found_tool_that_has_changed_is_defined_anew(open_stage):
    async with open_stage(written(SEARCH, query="colour"), "It is so.", "It is so.", context=9000) as stage:
        first = await answered(stage, QUESTION)
        changed = ToolSpec("paint", "Paint a wall in two colours", PAINT.parameters)
        await answered(stage, [*QUESTION, first, MORE], tools=[changed, SING, LOOK_UP])
        before, after = prompts(stage)[-2:]

    assert begins(after, before)
    assert changed.description in shown(stage)[-1]


async def test_tools_that_nothing_could_find_get_the_gateways_search(open_stage):
    async with open_stage("It is so.", context=9000) as stage:
        await answered(stage, QUESTION, BY_CLIENT, tools=[PAINT, SING])

    assert SEARCH in shown(stage)[0]


async def test_discoveries_of_a_long_conversation_lose_no_held_id(open_stage):
    """120 tools of public servers, of which each turn finds and calls others."""
    tools = [
        ToolSpec(entry.name, entry.definition.get("description", ""), entry.definition["inputSchema"])
        for entry in as_client().values()
    ]
    wanted = ["mcp__git__git_status", "mcp__github__create_pull_request", "mcp__notion__API-post-page"]
    asked = ["working tree status", "create a pull request on GitHub", "create a page in Notion"]
    rounds = zip(asked, wanted, strict=True)
    texts = [[written(SEARCH, query=query), written(name), f"I called {name}."] for query, name in rounds]
    said = [text for each in texts for text in each]
    async with open_stage(*said, context=200_000) as stage:
        history = [*QUESTION]
        for name in wanted:
            called = await answered(stage, history, Deferral({tool.name for tool in tools}, OURS), tools=tools)
            assert [call["function"]["name"] for call in called["tool_calls"]] == [name]
            history += [called, *results_of(called, "Done.")]
            done = await answered(stage, history, Deferral({tool.name for tool in tools}, OURS), tools=tools)
            history += [done, MORE]
        every = prompts(stage)

    for before, text, after in zip(every, said, every[1:], strict=False):
        assert begins(after, [*before, *TINY.encode(text, specials=True)])
    assert all(shown(stage)[-1].count(f'"name": "{name}", "description"') == 1 for name in wanted)


async def test_figures_say_what_was_deferred_and_what_each_request_loaded(open_stage):
    async with open_stage(written(SEARCH, query="wall"), "Yes.", "So.", written("sing"), "La.", context=9000) as stage:
        first = await answered(stage, QUESTION)
        talk = [*QUESTION, first, MORE]
        second = await answered(stage, talk)
        await answered(stage, [*talk, second, MORE])
        (last,) = stage.agent.recall.conversations(9)

    told = [[(each.kind, each.count) for each in node.figures.changes] for node in last.chain() if node.figures]
    assert told == [[("deferred", 1), ("loaded", 1)], [], [("loaded", 1)]]
    assert all(each.tokens > 10 for node in last.chain() if node.figures for each in node.figures.changes)
