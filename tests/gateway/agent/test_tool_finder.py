"""How many tools a search finds, and how many of their definitions one result has room for."""

from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.agent import Deferral
from gateway.agent.calls.tool_finder import OURS, ToolFinder
from gateway.context.compose.prompt import definition_texts
from gateway.toolcalls.schema.spec import ToolSpec
from leaf_sdk.testing import tiny_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
QUESTION = [{"role": "user", "content": "Hello."}]
WALLS = [ToolSpec(f"wall_{n:02}", f"Paint the wall number {n}", {"type": "object"}) for n in range(30)]


@pytest.fixture
def finder_of(open_stage):
    @asynccontextmanager
    async def make(most=100_000):
        async with open_stage(context=100_000, suggested_tools=0) as stage:
            deferral = Deferral({each.name for each in WALLS}, OURS)
            yield ToolFinder(await stage.agent.open(QUESTION, client_tools=WALLS, deferral=deferral), most)

    return make


@pytest.mark.parametrize(
    ("limit", "count"), [(None, 5), (0, 5), (-1, 5), ("3", 5), (1, 1), (20, 20), (21, 20), (10**9, 20)]
)
async def test_search_finds_five_tools_or_as_many_as_it_says_up_to_twenty(finder_of, limit, count):
    async with finder_of() as finder:
        found = await finder.search({"query": "wall", **({} if limit is None else {"limit": limit})})

    assert len(found.names) == len(found.new) == count


async def test_definitions_beyond_the_room_are_named_only_and_defined_by_a_later_search(finder_of):
    async with finder_of(most=1) as finder:
        first = await finder.search({"query": "wall", "limit": 3})
        again = await finder.search({"query": "wall", "limit": 3})
        finder.begin()
        anew = await finder.search({"query": "wall", "limit": 3})

    # The first is defined whatever it takes: otherwise it could never be called.
    assert [tool.name for tool in first.new] == [first.names[0]]
    assert first.text.endswith(f"Also fitting: {', '.join(first.names[1:])}")
    assert [tool.name for tool in again.new] == [again.names[1]]
    assert first.names[0] in again.text.partition("Also fitting: ")[2]
    # Nothing of the generation before was appended.
    assert anew == first


async def test_call_of_a_tool_that_does_not_exist_is_answered_with_three_that_fit(finder_of):
    async with finder_of() as finder:
        found = await finder.nearest("paint_wall", '{"number": 7}')
        none = await finder.nearest("xyzzy", "{}")

    assert len(found.names) == 3
    assert "there is no tool 'paint_wall', so this call was not made." in found.text
    assert (none.names, none.new) == ((), ())
    assert none.text.startswith("error: ")


async def test_tool_is_held_back_until_its_definition_was_read(finder_of):
    async with finder_of() as finder:
        assert [finder.holds(name) for name in ("wall_01", "nope", OURS.spec.name)] == [True, False, False]
        assert [finder.finds(name) for name in ("wall_01", "nope", OURS.spec.name)] == [True, False, True]
        found = await finder.unread("wall_01")

    assert "'wall_01' was not loaded yet, so this call was not made." in found.text
    assert [tool.name for tool in found.new] == ["wall_01"]


def sized(name: str, length: int) -> ToolSpec:
    return ToolSpec(name, f"Paint the wall. {'z' * length}", {"type": "object"})


async def written(tool: ToolSpec, stage: Any) -> str:
    conversation = await stage.agent.open(QUESTION)
    (text,) = await definition_texts([tool], conversation.ready)
    return text


async def new_of(stage: Any, tools: list[ToolSpec], most: int) -> list[str]:
    deferral = Deferral({tool.name for tool in tools}, OURS)
    finder = ToolFinder(await stage.agent.open(QUESTION, client_tools=tools, deferral=deferral), most)
    found = await finder.search({"query": "paint the wall"})
    assert {*found.names} == {tool.name for tool in tools}
    return [tool.name for tool in found.new]


async def test_definitions_fill_the_room_of_a_result_and_no_more(open_stage):
    tools = [sized("one", 10), sized("two", 20)]
    async with open_stage(context=100_000, suggested_tools=0) as stage:
        room = sum([len(TINY.encode(await written(tool, stage))) for tool in tools])
        assert [len(await new_of(stage, tools, room + more)) for more in (-1, 0)] == [1, 2]


@pytest.mark.parametrize("beyond", [0, 1])
async def test_definition_of_over_65536_characters_counts_as_a_quarter_of_them(open_stage, beyond):
    async with open_stage(context=1_000_000, suggested_tools=0) as stage:
        around = len(await written(sized("one", 0), stage))
        long, short = sized("one", 65_536 - around + beyond), sized("two", 0)
        text = await written(long, stage)
        size = len(text) // 4 if beyond else len(TINY.encode(text))
        room = size + len(TINY.encode(await written(short, stage)))
        assert len(text) == 65_536 + beyond
        assert [len(await new_of(stage, [long, short], room + more)) for more in (-1, 0)] == [1, 2]


@pytest.mark.parametrize(("blanks", "found"), [(496, 3), (497, 0)])
async def test_five_hundred_characters_of_arguments_say_what_a_call_is_for(finder_of, blanks, found):
    async with finder_of() as finder:
        assert len((await finder.nearest("xyzzy", f"{' ' * blanks}wall")).names) == found


async def test_answers_name_what_was_found_and_define_what_was_not_read(finder_of):
    async with finder_of() as finder:
        first = await finder.unread("wall_01")
        again = await finder.unread("wall_01")
        finder.begin()
        nearest = await finder.nearest("paint_wall", "{}")
        none = await finder.search({})
        odd = await finder.search({"query": "xyzzy"})

    assert first.names == again.names == ("wall_01",)
    assert again.new == ()
    assert again.text.startswith("'wall_01' was not loaded yet, so this call was not made. Also fitting: wall_01\n")
    assert again.text.endswith("\nCall it again as defined.")
    assert [tool.name for tool in nearest.new] == [*nearest.names]
    assert nearest.text.endswith(f"\nCall the one that fits, as defined, or find others with '{OURS.spec.name}'.")
    assert none == odd
    assert (odd.names, odd.new) == ((), ())
    assert "none of the 30 tools" in odd.text


async def test_finder_of_a_client_that_searches_itself_has_no_name_and_guesses_nothing(open_stage):
    async with open_stage(context=100_000, suggested_tools=0) as stage:
        for search, guesses in ((OURS, True), (None, False)):
            tools = [*WALLS, ToolSpec("look", "Look for tools", {"type": "object"})]
            deferral = Deferral({each.name for each in WALLS}, search)
            finder = ToolFinder(await stage.agent.open(QUESTION, client_tools=tools, deferral=deferral), 1000)
            assert finder.name == (OURS.spec.name if guesses else None)
            assert [finder.guesses(name) for name in ("paint_wall", "Ann")] == [guesses, False]
            assert len((await finder.search({"query": "wall"})).names) == (5 if guesses else 0)
