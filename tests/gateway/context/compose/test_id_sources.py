"""Where ids came from, id by id: while a context grows, where an answer cuts it, and in what a template has written."""

import json
from array import array
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.compose.id_sources import (
    LEAST,
    DefinitionCache,
    Definitions,
    SourceTrail,
    spans_of_new,
    spans_of_rendering,
    spans_of_text,
)
from gateway.context.history.template_messages import tool_definitions
from gateway.context.memory import Lived, LivedTurn, Recalled, Turn
from gateway.engine.rendering.prompt_ids import Part
from gateway.engine.rendering.template import Rendering
from gateway.observe.trajectories import Source, Span
from gateway.toolcalls.formats.registry import describe_tool
from gateway.toolcalls.schema.spec import ToolSpec
from tests.cases import each_of


def each_id(spans: Sequence[Span]) -> list[Span]:
    """A span of one id for each id."""
    return [span.of(1) for span in spans for _ in range(span.count)]


SPANS = st.lists(
    st.builds(
        Span,
        st.sampled_from(get_args(Source)[:2]),
        st.integers(0, 4),
        st.sampled_from([None, "look"]),
        st.sampled_from([None, "up"]),
    ),
    max_size=8,
)


def is_short(spans: Sequence[Span]) -> bool:
    """Whether no span is empty, or could be part of the one before it."""
    return all(span.count > 0 for span in spans) and not any(one.is_like(other) for one, other in pairwise(spans))


@given(SPANS, SPANS)
def test_trail_holds_the_source_of_each_id_in_as_few_spans_as_can_be(first: list[Span], more: list[Span]) -> None:
    trail = SourceTrail()
    trail.add(first)
    trail.add(more)

    assert each_id(trail.spans) == each_id([*first, *more])
    assert is_short(trail.spans)


@given(SPANS, st.integers(0, 20), st.integers(0, 20))
def test_ids_that_the_answer_before_has_too_are_left_to_it(spans: list[Span], kept: int, same: int) -> None:
    trail = SourceTrail(kept)
    trail.add(spans)
    trail.keep(same)

    cut = [Span("assistant", 1)] * max(kept - same, 0)
    assert trail.kept == same
    assert each_id(trail.spans) == [*cut, *each_id(spans)[max(same - kept, 0) :]]
    assert is_short(trail.spans)


def test_message_is_the_source_of_its_text_by_its_role() -> None:
    assert spans_of_text("user", 3, "look", "up") == Span("user", 3)
    assert spans_of_text("assistant", 3) == Span("assistant", 3)
    assert spans_of_text("tool", 3, "look", "up") == Span("shim", 3, "look", "up")
    assert spans_of_text("system", 3) == spans_of_text("developer", 3) == Span("system", 3)


# Definitions of tools.

LOOK = ToolSpec("look", "Looks <around>.", {"type": "object"})
DIG = ToolSpec("dig", "Digs é.", {"type": "object"})
SERVERS = {"look": "up"}


def table_of(text: str, size: int = 1) -> dict[int, bytes]:
    """Ids of so many bytes each, the last one of what is left."""
    written = text.encode()
    return {number: written[at : at + size] for number, at in enumerate(range(0, len(written), size))}


def spans_in(
    text: str, *tools: ToolSpec, size: int = 1, around: Source = "template", taught: str = ""
) -> list[tuple[str, str]]:
    """What is found in a text: each source, with its tool and server, and its bytes as text."""
    table = table_of(text, size)
    found = Definitions(tools, SimpleNamespace(table=table), SERVERS, taught).spans(list(table), around)  # type: ignore[arg-type]
    told: list[tuple[str, str]] = []
    at = 0
    for span in found:
        assert span.count > 0
        name = "/".join(filter(None, (span.source, span.server, span.tool)))
        told.append((name, b"".join(table[n] for n in range(at, at + span.count)).decode()))
        at += span.count
    assert at == len(table)
    return told


def written(tool: ToolSpec, indent: int | None = None) -> str:
    return json.dumps(tool_definitions([tool])[0], ensure_ascii=False, indent=indent)


def bare(tool: ToolSpec, indent: int | None = None) -> str:
    return json.dumps(tool_definitions([tool])[0]["function"], ensure_ascii=False, indent=indent)


FORMS = {
    **{f"whole, {n}": lambda tool, n=n: written(tool, n) for n in (None, 2, 4)},
    **{f"function, {n}": lambda tool, n=n: bare(tool, n) for n in (None, 2, 4)},
    "as the gateway teaches it": describe_tool,
}


@pytest.mark.parametrize("form", FORMS)
def test_definition_is_found_in_each_form(form: str) -> None:
    text = FORMS[form](LOOK)

    assert spans_in(f"Tools: {text}.", LOOK) == [("template", "Tools: "), ("tools/up/look", text), ("template", ".")]


def test_text_without_a_definition_has_one_source() -> None:
    assert spans_in("no tools here", LOOK, around="system") == [("system", "no tools here")]
    assert spans_in("", LOOK) == []
    assert spans_in("no tools here") == [("template", "no tools here")]


@pytest.mark.parametrize("between", [", ", "\n", "];[\t\r", ""])
def test_punctuation_between_two_definitions_belongs_to_the_first(between: str) -> None:
    assert spans_in(f"[{bare(LOOK)}{between}{bare(DIG)}]", LOOK, DIG) == [
        ("template", "["),
        ("tools/up/look", f"{bare(LOOK)}{between}"),
        ("tools/dig", bare(DIG)),
        ("template", "]"),
    ]


def test_words_between_two_definitions_do_not() -> None:
    assert spans_in(f"{bare(LOOK)} and {bare(DIG)}", LOOK, DIG) == [
        ("tools/up/look", bare(LOOK)),
        ("template", " and "),
        ("tools/dig", bare(DIG)),
    ]


def test_definitions_are_found_in_another_order_too() -> None:
    text = f"{bare(DIG)}. {bare(LOOK)}"

    assert spans_in(text, LOOK, DIG) == [("tools/dig", bare(DIG)), ("template", ". "), ("tools/up/look", bare(LOOK))]


def test_form_of_the_first_definition_is_that_of_all() -> None:
    text = f"{bare(LOOK)}. {written(DIG, 2)}"

    assert spans_in(text, LOOK, DIG) == [("tools/up/look", bare(LOOK)), ("template", f". {written(DIG, 2)}")]


@pytest.mark.parametrize("taught", ["", bare(LOOK)])
def test_tool_that_is_sent_twice_is_found_once(taught: str) -> None:
    assert spans_in(f"Tools: {bare(LOOK)}.", LOOK, LOOK, taught=taught) == [
        ("template", "Tools: "),
        ("tools/up/look", bare(LOOK)),
        ("template", "."),
    ]


@pytest.mark.parametrize(("missing", "found"), [(7, True), (8, False)])
def test_after_eight_missing_definitions_the_rest_is_not_looked_for(missing: int, found: bool) -> None:
    others = [ToolSpec(f"tool{n}", "", {}) for n in range(missing)]

    assert (spans_in(bare(LOOK), *others, LOOK)[0][0] == "tools/up/look") is found


def test_all_that_was_taught_belongs_to_the_tools() -> None:
    taught = f"You can call:\n{describe_tool(LOOK)}\nor\n{describe_tool(DIG)}\nnow."

    assert spans_in(f"Be kind. {taught} Bye.", LOOK, DIG, around="system", taught=taught) == [
        ("system", "Be kind. "),
        ("tools", "You can call:\n"),
        ("tools/up/look", describe_tool(LOOK)),
        ("tools", "\nor\n"),
        ("tools/dig", describe_tool(DIG)),
        ("tools", "\nnow."),
        ("system", " Bye."),
    ]
    assert spans_in(taught, LOOK, DIG, taught=taught)[0] == ("tools", "You can call:\n")
    assert spans_in(describe_tool(LOOK), LOOK, taught=describe_tool(LOOK)) == [("tools/up/look", describe_tool(LOOK))]


def test_definitions_are_found_where_the_taught_text_is_not() -> None:
    assert spans_in(f"{bare(LOOK)}, {bare(DIG)}", LOOK, DIG, taught="You can") == [
        ("tools/up/look", f"{bare(LOOK)}, "),
        ("tools/dig", bare(DIG)),
    ]


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(1, 9))
def test_id_belongs_to_where_its_first_byte_is(before: int, between: int, after: int, size: int) -> None:
    text = f"{'a' * before}{bare(LOOK)}{'b' * between}{bare(DIG)}{'c' * after}"
    sources: list[Any] = []
    for source, count in (
        *(("template", before), ("up", len(bare(LOOK).encode())), ("template", between)),
        *((None, len(bare(DIG).encode())), ("template", after)),
    ):
        sources += [source] * count

    table = table_of(text, size)
    found = Definitions([LOOK, DIG], SimpleNamespace(table=table), SERVERS).spans(list(table), "template")  # type: ignore[arg-type]
    shown = [span.server if span.source == "tools" else "template" for span in each_id(found)]
    assert shown == sources[::size]


def test_id_that_the_map_does_not_have_has_no_text() -> None:
    table = table_of(bare(LOOK))
    definitions = Definitions([LOOK], SimpleNamespace(table=table), {})  # type: ignore[arg-type]

    ids = [*range(5), 9999, *range(5, len(table))]
    assert definitions.spans(ids, "template") == [Span("tools", len(ids), "look")]


def test_characters_that_are_no_unicode_are_found_as_templates_replace_them() -> None:
    broken = ToolSpec("look", "\ud800", {})

    assert spans_in(bare(broken).replace("\ud800", "?"), broken)[0][0] == "tools/up/look"


# What was searched before.


class Searched:
    """Definitions that note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, str]] = []

    def spans(self, ids: Sequence[int], around: Source) -> list[Span]:
        self.asked.append((tuple(ids), around))
        return [Span(around, len(ids))]


def test_part_is_searched_once_for_equal_tools_and_sources() -> None:
    searched, cache = Searched(), DefinitionCache()
    for ids, around, tools in (
        *(([1], "template", "a"), ([1], "template", "a"), ((1,), "template", "a")),
        *(([1], "system", "a"), ([1], "template", "b"), ([2], "template", "a")),
    ):
        assert cache.spans(ids, around, tools, lambda: searched) == [Span(around, 1)]  # type: ignore[arg-type,return-value]

    assert searched.asked == [((1,), "template"), ((1,), "system"), ((1,), "template"), ((2,), "template")]


def test_last_32_parts_are_kept_by_when_they_were_used() -> None:
    searched, cache = Searched(), DefinitionCache()

    def search(number: int) -> int:
        """How many searches it took."""
        before = len(searched.asked)
        cache.spans([number], "template", "a", lambda: searched)  # type: ignore[arg-type,return-value]
        return len(searched.asked) - before

    assert [search(number) for number in range(32)] == [1] * 32
    assert search(0) == 0
    assert search(32) == 1
    # 1 was used longest ago.
    assert [search(0), search(2), search(1)] == [0, 0, 1]


# Renderings and new messages.

CALLS = [{"id": f"c{n}", "function": {"name": name}} for n, name in enumerate(("look", "dig", "far/see", "up/gone"))]
CALLED = {"role": "assistant", "content": "", "tool_calls": CALLS}


def server_of(name: str) -> str | None:
    return {"look": "up", "far/see": "known"}.get(name)


def result(call: str, **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": "sun", **more}


def rendered(
    parts: list[Part], form: list[Any], turns: Sequence[Turn] = (), moved: int = 0, definitions: Any = None
) -> list[Span]:
    ids = list(range(100, 100 + sum(part.ids for part in parts)))
    return spans_of_rendering(Rendering(ids, False, parts, form), turns, moved, server_of, definitions)


@each_of(
    ("message", "span"),
    [
        ({"role": "user", "content": "hi"}, Span("user", 3)),
        ({"role": "user", "content": "hi", "name": "look"}, Span("user", 3)),
        (result("c0"), Span("shim", 3, "look", "up")),
        (result("c1"), Span("shim", 3, "dig")),
        # A server that there is no longer is named before a slash, unless the whole is a tool's name.
        (result("c2"), Span("shim", 3, "far/see", "known")),
        (result("c3"), Span("shim", 3, "up/gone", "up")),
        (result("c0", name="dig"), Span("shim", 3, "dig")),
        (result("c9"), Span("shim", 3)),
        (result("c9", name=7), Span("shim", 3)),
    ],
)
def test_text_of_a_result_came_from_its_tool(message: dict[str, Any], span: Span) -> None:
    turns = [Turn({"role": "user", "content": "hi"}), Turn(CALLED), Turn(message)]

    assert rendered([Part(3, 0)], [(2, message)], turns) == [span]
    recalled = Recalled(None, (Turn(CALLED),), (Turn(message),))  # type: ignore[arg-type]
    assert spans_of_new(recalled, [[1, 2, 3]], server_of) == [(span,)]


def test_parts_without_a_message_are_the_templates_and_empty_ones_nobodys() -> None:
    user = {"role": "user", "content": "hi"}

    found = rendered([Part(2), Part(0, 0), Part(3, 0), Part(0), Part(4)], [(0, user)], [Turn(user)])
    assert found == [Span("template", 2), Span("user", 3), Span("template", 4)]


def test_messages_that_the_client_has_not_sent_are_shown_by_their_role() -> None:
    turns = [Turn({"role": "user", "content": "hi"}, Lived({}, array("I"), LivedTurn()))]
    form = [(0, {"role": "system", "content": "a"}), (None, {"role": "user", "content": "b"}), (1, turns[0].message)]
    parts = [Part(1, 0, True), Part(2, 1, True), Part(3, 2, True)]

    assert rendered(parts, form, turns, moved=1) == [Span("system", 1), Span("user", 2), Span("model", 3)]


def test_turn_that_keeps_its_ids_keeps_their_sources() -> None:
    answer = {"role": "assistant", "content": "yes"}
    cut = (Span("model", 2), Span("assistant", 1))
    lived = [
        Lived(answer, array("I"), LivedTurn()),
        Lived(answer, array("I"), LivedTurn(), cut),
        Lived(result("c0"), array("I"), None, (Span("leaf", 3, "look"),)),
        Lived(result("c0"), array("I")),
    ]
    turns = [Turn(CALLED), *(Turn(each.message, each) for each in lived), Turn(answer)]
    form = [(number, turn.message) for number, turn in enumerate(turns)]

    def found(held: bool) -> list[list[Span]]:
        return [rendered([Part(3, number, held)], form, turns) for number in range(1, 6)]

    shown = [Span("assistant", 3), Span("assistant", 3), *[Span("shim", 3, "look", "up")] * 2, Span("assistant", 3)]
    assert found(held=True) == [[Span("model", 3)], [*cut], [Span("leaf", 3, "look")], [shown[3]], [shown[4]]]
    assert found(held=False) == [[span] for span in shown]


def test_new_result_that_keeps_its_ids_keeps_their_sources() -> None:
    lived = Lived(result("c0"), array("I", [1, 2]), None, (Span("leaf", 2, "look"),))
    recalled = Recalled(None, (Turn(CALLED),), (Turn(result("c0"), lived), Turn(result("c0"), lived)))  # type: ignore[arg-type]

    assert spans_of_new(recalled, [lived.ids, array("I", [1, 2])], server_of) == [
        (Span("leaf", 2, "look"),),
        (Span("shim", 2, "look", "up"),),
    ]


def test_calls_of_the_last_turn_alone_name_the_tools_of_new_results() -> None:
    recalled = Recalled(None, (Turn(CALLED), Turn({"role": "assistant"})), (Turn(result("c0")),))  # type: ignore[arg-type]

    assert spans_of_new(recalled, [[1]], server_of) == [(Span("shim", 1),)]
    assert spans_of_new(Recalled(None, (), (Turn({"role": "user"}),)), [[1]], server_of) == [(Span("user", 1),)]  # type: ignore[arg-type]


def test_definitions_are_looked_for_in_long_parts_of_the_template_and_of_system_messages() -> None:
    asked: list[tuple[list[int], Source]] = []

    def definitions(ids: Sequence[int], around: Source) -> list[Span]:
        asked.append((list(ids), around))
        return [Span("tools", len(ids), "look")]

    system, user = {"role": "system", "content": "a"}, {"role": "user", "content": "b"}
    parts = [Part(LEAST), Part(LEAST - 1), Part(0), Part(LEAST + 1, 0), Part(LEAST, 1)]

    found = rendered(parts, [(0, system), (1, user)], [Turn(system), Turn(user)], definitions=definitions)

    assert found == [
        *(Span("tools", LEAST, "look"), Span("template", LEAST - 1)),
        *(Span("tools", LEAST + 1, "look"), Span("user", LEAST)),
    ]
    start = 100 + 2 * LEAST - 1
    assert asked == [
        (list(range(100, 100 + LEAST)), "template"),
        (list(range(start, start + LEAST + 1)), "system"),
    ]
