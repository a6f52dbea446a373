"""Which tools are to blame for a grammar that an engine refuses, and for how long that is known."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.formats.format import call_grammar
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.grammar.refused_grammars import LooseTools, loosened, too_much
from gateway.toolcalls.schema.spec import ToolSpec

pytestmark = pytest.mark.anyio


def tool(number: int) -> ToolSpec:
    return ToolSpec(f"t{number}", "", {"type": "object", "properties": {"x": {"const": number}}})


class Engine:
    """Refuses a grammar with a bad tool in it, or with more tools than it likes."""

    def __init__(self, bad: set[int], most: int = 1000) -> None:
        self.bad = {tool(number).name for number in bad}
        self.most = most
        self.looks = 0
        self.noted: list[str] = []

    async def takes(self, tools: Sequence[ToolSpec]) -> bool:
        self.looks += 1
        return len(tools) <= self.most and self.bad.isdisjoint(each.name for each in tools)

    def note(self, found: ToolSpec) -> None:
        self.noted.append(found.name)


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
async def test_each_tool_that_is_refused_alone_is_found_and_no_other(drawn: tuple[int, set[int]]) -> None:
    count, bad = drawn
    engine = Engine(bad)
    found = await too_much([tool(number) for number in range(count)], engine.takes, engine.note)

    assert [each.name for each in found] == engine.noted == [f"t{number}" for number in sorted(bad)]


async def test_one_bad_tool_among_many_costs_few_looks() -> None:
    engine = Engine({77})
    found = await too_much([tool(number) for number in range(183)], engine.takes, engine.note)

    assert [each.name for each in found] == ["t77"]
    assert engine.looks <= 16


async def test_what_is_too_much_together_is_loosened_for_this_time_alone() -> None:
    tools = [tool(number) for number in range(10)]
    engine = Engine(set(), most=9)

    assert await too_much(tools, engine.takes, engine.note) == tools
    assert engine.noted == []


async def test_looks_have_a_bound_and_what_was_not_looked_at_is_loosened_too() -> None:
    tools = [tool(number) for number in range(500)]
    engine = Engine(set(range(500)))
    found = await too_much(tools, engine.takes, engine.note)

    assert {each.name for each in found} == {each.name for each in tools}
    assert engine.looks == 64
    assert 0 < len(engine.noted) < 64


async def test_schema_that_was_refused_is_known_whosever_tool_has_it_and_no_other_is() -> None:
    loose = LooseTools()
    loose.note(tool(1))

    assert ToolSpec("another", "Other words", tool(1).parameters) in loose
    assert tool(2) not in loose
    assert tool(1) not in LooseTools()


def test_that_an_engine_refuses_grammars_that_wait_is_known_from_then_on() -> None:
    loose = LooseTools()
    before = loose.refuses_lazy
    loose.note_lazy()

    assert (before, loose.refuses_lazy) == (False, True)


async def test_memory_of_refused_schemas_is_bounded_and_keeps_those_that_are_asked_for() -> None:
    loose = LooseTools(most=2)
    loose.note(tool(1))
    loose.note(tool(2))
    assert tool(1) in loose
    loose.note(tool(3))

    assert [tool(number) in loose for number in (1, 2, 3)] == [True, False, True]


def test_loosened_tool_keeps_its_name_and_takes_any_object() -> None:
    grammar = call_grammar(format_named("generic"), [loosened(tool(1))], choice="required")

    assert '\\"t1\\"' in grammar
    assert grammar == call_grammar(format_named("generic"), [ToolSpec("t1", "", {"type": "object"})], choice="t1")
