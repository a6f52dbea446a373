"""Which tools a request is offered: those that the prompt defines, those that are only found, and those suggested."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from gateway.agent.calls.request_tools import (
    EVERY_TOOL,
    NO_DEFERRAL,
    NO_TOOL,
    Deferral,
    Deferring,
    OfferedTools,
    ToolScope,
    aliases_of,
    gathered,
    is_heavy,
    with_suggestions,
)
from gateway.agent.calls.tool_finder import OURS
from gateway.config import LimitsConfig
from gateway.config.overrides import ApprovalsConfig, ToolOverride
from gateway.context.compose.conversation import SearchTool
from gateway.context.memory import FOUND_TOOLS
from gateway.context.memory.defined_tools import ToolDigests
from gateway.engine.interface import Message
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.naming import Aliases, ToolEntry
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Diagnostic
from tests.cases import each_of

PAINT, SING, FIND = (ToolSpec(name, f"To {name}", {"type": "object"}) for name in ("paint", "sing", "find"))
THEIRS = SearchTool(FIND, "words")
SAY, PLAY = (ToolEntry(name, "up", name, {"name": name, "inputSchema": {}}) for name in ("up__say", "up__play"))
SIX = [ToolSpec(f"t{n}", "", {"type": "object"}) for n in range(6)]
ROOMY = 1_000_000


def test_scope_holds_the_tools_of_its_servers_by_any_of_their_names() -> None:
    alias = ToolEntry("say_1234", "up", "say", {}, alias_of="up.say")
    names: list[Any] = ["say_1234", "say", "up.say", "other"]

    assert [ToolScope({"up": frozenset({each})}).holds(alias) for each in names] == [True, True, True, False]
    assert [ToolScope(each).holds(alias) for each in (None, {}, {"up": None}, {"up": frozenset()}, {"down": None})] == [
        *(True, False, True, False, False)
    ]
    assert (EVERY_TOOL.holds(alias), NO_TOOL.holds(alias)) == (True, False)


def test_definitions_are_heavy_beyond_a_quarter_of_the_context() -> None:
    assert [is_heavy(tokens, 4000) for tokens in (0, 1000, 1001)] == [False, False, True]


def offered(
    theirs: Sequence[ToolSpec],
    deferral: Deferral = NO_DEFERRAL,
    *,
    defined: Sequence[ToolSpec] = (),
    searched: Sequence[ToolEntry] = (),
    named: Collection[str] = (),
    context: int = ROOMY,
    deferring: Deferring = "auto",
) -> OfferedTools:
    found = {each.name: each for each in searched}
    return gathered((defined, found), theirs, deferral, named, context, deferring, ToolDigests())


def names(tools: OfferedTools) -> tuple[list[str], list[str], str | None]:
    """Those that are defined, those that are deferred, and the search."""
    search = None if tools.search is None else tools.search.spec.name
    return [tool.name for tool in tools.tools], list(tools.deferred), search


FINDER = OURS.spec.name


@each_of(
    ("asked", "told"),
    [
        ({}, ([], [], None)),
        ({"theirs": [PAINT, SING]}, (["paint", "sing"], [], None)),
        # A client's tool takes the place of ours with the same name, defined or searched.
        (
            {"theirs": [PAINT], "defined": [ToolSpec("paint", "Ours", {}), SING]},
            (["paint", "sing"], [], None),
        ),
        ({"theirs": [ToolSpec("up__say", "", {})], "searched": [SAY]}, (["up__say"], [], None)),
        (
            {"theirs": [PAINT], "searched": [SAY, PLAY]},
            ([FINDER, "paint"], ["up__say", "up__play"], FINDER),
        ),
        # A tool of the client's finds the others, unless the model could not call it.
        ({"theirs": [PAINT, FIND], "deferral": Deferral({"paint"})}, (["find"], ["paint"], None)),
        ({"theirs": [PAINT, SING], "deferral": Deferral({"paint", "sing"})}, ([FINDER], ["paint", "sing"], FINDER)),
        # What stands in the messages need not be found.
        (
            {"theirs": [PAINT, SING], "deferral": Deferral({"paint", "sing"}, found={"paint"})},
            ([FINDER], ["paint", "sing"], FINDER),
        ),
        (
            {"theirs": [PAINT, SING], "deferral": Deferral({"paint", "sing"}, found={"paint", "sing"})},
            ([], ["paint", "sing"], None),
        ),
        # The client's own search, which the gateway runs, is defined once.
        ({"theirs": [PAINT], "deferral": Deferral({"paint"}, THEIRS)}, (["find"], ["paint"], "find")),
        ({"theirs": [PAINT, FIND], "deferral": Deferral({"paint"}, THEIRS)}, (["find"], ["paint"], "find")),
        # Names of no tool are not deferred, and neither is what the request requires.
        ({"theirs": [PAINT], "deferral": Deferral({"nope"})}, (["paint"], [], None)),
        (
            {"theirs": [PAINT, SING], "deferral": Deferral({"paint", "sing"}, OURS), "named": ["sing"]},
            ([FINDER, "sing"], ["paint"], FINDER),
        ),
    ],
)
def test_what_is_defined_and_what_is_only_found(asked: Mapping[str, Any], told: Any) -> None:
    asked = dict(asked)
    tools = offered(asked.pop("theirs", []), asked.pop("deferral", NO_DEFERRAL), **asked)

    assert names(tools) == told
    assert (tools.note is not None) is bool(told[1])


def test_deferred_tools_are_noted_with_their_number_and_become_entries_without_a_server() -> None:
    tools = offered([PAINT, FIND], Deferral({"paint"}), searched=[SAY])

    assert tools.note == Diagnostic(
        "deferred", "2 tools are deferred: their definitions are not in the prompt until the model finds them"
    )
    definition = {"name": "paint", "description": "To paint", "inputSchema": {"type": "object"}}
    assert tools.deferred == {"up__say": SAY, "paint": ToolEntry("paint", "", "paint", definition)}
    assert tools.deferred["paint"].spec == PAINT


@pytest.mark.parametrize(
    ("tools", "deferring", "deferred"),
    [
        (SIX, "auto", False),
        (SIX[:5], "auto", False),
        (SIX[:5], "always", True),
        ([], "always", False),
        (SIX, "never", False),
    ],
)
def test_gateway_defers_tools_of_a_client_that_defers_none_as_configured(
    tools: list[ToolSpec],
    deferring: Deferring,
    deferred: bool,
) -> None:
    found = offered(tools, deferring=deferring)

    assert names(found) == (
        ([FINDER], [each.name for each in tools], FINDER) if deferred else ([each.name for each in tools], [], None)
    )
    assert (found.note is not None and "agent.defer_client_tools" in found.note.message) is deferred


def test_gateway_that_defers_takes_the_search_that_the_client_brings() -> None:
    assert names(offered([PAINT], Deferral((), THEIRS), deferring="always")) == (["find"], ["paint"], "find")


@pytest.mark.anyio
async def test_offers_are_those_of_the_servers_that_somebody_may_see(open_runner: Any) -> None:
    nobody = Principal("eve", frozenset({"elsewhere"}))
    async with open_runner(LimitsConfig(), tool_search=True) as (runner, _):
        offers = runner.offers
        assert [offers.servers(each) for each in (ANYBODY, nobody)] == [{"up"}, set()]
        assert offers.divide(offers.entries(nobody), ROOMY) == ((), {})
        entries = offers.entries(ANYBODY)
        assert aliases_of(entries) == {}
        assert (offers.server_of("up__say"), offers.server_of("nope")) == ("up", None)
        assert [each.name for each in offers.divide(entries, ROOMY, (), ToolScope({"up": None}))[0]] == ["up__say"]
        assert offers.divide(entries, ROOMY, (), NO_TOOL) == ((), {})


@pytest.mark.anyio
async def test_aliases_are_of_tools_whose_names_no_other_tool_has(open_runner: Any) -> None:
    async with open_runner(LimitsConfig(), overrides={"say": ToolOverride("say.it")}) as (runner, _):
        alias = Aliases().alias_of("say.it")
        entries = runner.offers.entries(ANYBODY)
        assert aliases_of(entries) == {"say.it": alias}
        assert aliases_of(entries, besides={"say.it"}) == {}
        assert aliases_of(entries, besides={alias}) == {"say.it": alias}


@pytest.mark.anyio
@pytest.mark.parametrize(("level", "asks"), [("never", False), ("always", True)])
async def test_operator_says_which_calls_need_an_approval(open_runner: Any, level: Any, asks: bool) -> None:
    async with open_runner(LimitsConfig(), approvals=ApprovalsConfig(ask=level)) as (runner, _):
        (entry,) = runner.offers.entries(ANYBODY)
        assert runner.offers.approval_rule()(entry) is asks


@pytest.mark.parametrize(("beyond", "deferred"), [(0, False), (1, True)])
@pytest.mark.parametrize("count", [5, 6])
def test_gateway_defers_six_tools_or_more_that_take_over_half_of_the_context(
    count: int,
    beyond: int,
    deferred: bool,
) -> None:
    """A token is estimated as four bytes; a template writes 70 around each definition."""
    taken = sum(70 + ToolDigests().of(tool)[1] for tool in SIX[:count])
    tools = [ToolSpec("t0", "z" * (taken % 2 + 2 * beyond), SIX[0].parameters), *SIX[1:count]]
    context = (taken + taken % 2) // 2

    assert bool(offered(tools, context=context).deferred) is (deferred and count > 5)
    # A client that defers some knows which.
    assert list(offered(tools, Deferral({"t1"}), context=context).deferred) == ["t1"]


WORDS = "Paint the wall of my room"
WALLS = [ToolSpec(f"wall_{n}", "Paint the wall", {"type": "object"}) for n in range(4)]


def sized(name: str, size: int) -> ToolSpec:
    """A tool whose definition has so many bytes."""
    tool = ToolSpec(name, "Paint the wall ", {"type": "object"})
    return ToolSpec(name, tool.description + "z" * (size - ToolDigests().of(tool)[1]), tool.parameters)


async def suggested(
    messages: list[Message],
    tools: Sequence[ToolSpec] = WALLS,
    *,
    search: SearchTool | None = OURS,
    most: int = 3,
    context: int = ROOMY,
    allows: Any = lambda name: True,
) -> tuple[list[Message], str | None]:
    """The messages with suggestions, and what the note says of them."""
    given = offered(tools, Deferral({each.name for each in tools}, OURS))
    given = OfferedTools(given.tools, given.deferred, search, given.note)
    told, noted = await with_suggestions(messages, given, ToolDigests(), most, context, allows)
    assert given.note is not None
    assert noted.note is not None
    assert (noted.tools, noted.deferred, noted.search) == (given.tools, given.deferred, given.search)
    assert noted.note.kind == "deferred"
    added = noted.note.message.removeprefix(given.note.message)
    return list(told), added.removeprefix("; the user's words suggest ") or None


def user(text: str = WORDS, **more: Any) -> Message:
    return {"role": "user", "content": text, **more}


@pytest.mark.anyio
async def test_last_message_names_the_tools_that_fit_it() -> None:
    told, note = await suggested([user("Hello"), user(WORDS, **{FOUND_TOOLS: ("sing", "wall_1")})])

    assert note == "wall_0, wall_1, wall_2"
    assert told == [user("Hello"), user(WORDS, **{FOUND_TOOLS: ("sing", "wall_1", "wall_0", "wall_2")})]


@pytest.mark.anyio
@each_of(
    "asked",
    [
        {"most": 0},
        {"search": None},
        {"allows": lambda name: False},
        {"messages": []},
        {"messages": [user(), {"role": "assistant", "content": WORDS}]},
        {"messages": [user("Paint it")]},
        {"messages": [user("")]},
        {"messages": [{"role": "user", "content": None}]},
        {"context": 1},
    ],
)
async def test_nothing_is_suggested_where_nothing_could_be(asked: Mapping[str, Any]) -> None:
    messages = asked.get("messages", [user()])
    options = {key: value for key, value in asked.items() if key != "messages"}

    assert await suggested(messages, **options) == (messages, None)


@pytest.mark.anyio
async def test_only_tools_that_may_be_called_are_suggested() -> None:
    _, note = await suggested([user()], allows=lambda name: name != "wall_0", most=2)

    assert note == "wall_1, wall_2"


@pytest.mark.anyio
@pytest.mark.parametrize(("beyond", "found"), [(0, True), (1, False)])
async def test_two_thousand_characters_at_the_end_of_a_message_are_searched(
    beyond: int,
    found: bool,
) -> None:
    words = "wall paint"
    _, note = await suggested([user(f". {words}{' ' * (2000 - len(words) + beyond)}")])

    assert (note is not None) is found


@pytest.mark.anyio
@pytest.mark.parametrize("asked", [1, 2])
async def test_definitions_take_an_eighth_of_the_context_for_each_question(asked: int) -> None:
    """Those in front of the second one take half of what those in front of the first may. A token is four bytes."""
    messages: list[Message] = [{"role": "system", "content": ""}, *[user("")] * (asked - 1), user()]
    tools = [sized(f"wall_{n}", 100) for n in range(3)]
    told = [(await suggested(messages, tools, context=8 * asked * 50 + more))[1] for more in (-1, 0)]

    assert told == ["wall_0", "wall_0, wall_1"]


@pytest.mark.anyio
@pytest.mark.parametrize(("size", "note"), [(4000, "wall"), (4001, None)])
async def test_definitions_in_front_of_a_message_take_a_thousand_tokens_at_most(size: int, note: str | None) -> None:
    assert await suggested([user()], [sized("wall", size)]) == (
        [user(**({FOUND_TOOLS: ("wall",)} if note else {}))],
        note,
    )


@pytest.mark.anyio
async def test_definition_that_does_not_fit_leaves_its_room_to_the_next() -> None:
    _, note = await suggested([user()], [sized("paint_wall", 4001), *WALLS], most=2)

    assert note == "wall_0"


@pytest.mark.anyio
@pytest.mark.parametrize(("beyond", "found"), [(0, True), (1, False)])
async def test_nothing_is_suggested_once_half_of_the_context_is_written(
    beyond: int,
    found: bool,
) -> None:
    context = 4000
    earlier = user("é" * ((2 * context - len(WORDS)) // 2) + "z" * (len(WORDS) % 2) + "z" * beyond)
    _, note = await suggested([earlier, user()], context=context)

    assert (note is not None) is found
