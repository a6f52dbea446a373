"""How many tools a search finds, and how many of their definitions one result has room for."""

from contextlib import asynccontextmanager

import pytest

from gateway.agent import Deferral
from gateway.agent.calls.tool_finder import OURS, ToolFinder
from gateway.toolcalls.schema.spec import ToolSpec

pytestmark = pytest.mark.anyio
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
