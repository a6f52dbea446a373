"""A parser that fails costs its call, never the answer: what follows is content, and a diagnostic says so."""

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.nodes.json_nodes import Json
from gateway.toolcalls.nodes.passages import Prose, Thought
from gateway.toolcalls.nodes.readers import Capture, First, Lit, Node, Seq, Start, Steps
from gateway.toolcalls.nodes.regions import CallNode, MarkedRegion
from gateway.toolcalls.parser import Machine, parser_for
from gateway.toolcalls.stream.cursor import Cursor, Sight
from gateway.toolcalls.stream.output_events import CallArguments, CallEvents, Content, Policy, Reasoning, new_call_ids
from gateway.toolcalls.stream.spelling import Spelling
from tests.gateway.toolcalls.fakes import PLAIN, TOOLS, closed, diagnostics, run, started, texts
from tests.gateway.toolcalls.families import Told
from tests.gateway.toolcalls.test_laws import messages

if TYPE_CHECKING:
    from gateway.toolcalls.stream.output_events import Event


@dataclass(frozen=True, slots=True)
class Broken(Node):
    """A node with a fault in it."""

    def first(self, spelling: Spelling) -> First:
        return None

    def run(self, at: Cursor) -> Steps:
        raise IndexError("no such node")
        yield

    def grammar(self, g: object) -> str:
        return ""


class FailingCursor(Cursor):
    """A cursor of which the use number `fails_at` raises, counted while nodes run."""

    fails_at = -1
    used = 0
    nodes_run = False

    def _use(self) -> None:
        self.used += self.nodes_run
        if self.nodes_run and self.used == self.fails_at:
            raise IndexError("a fault in a node")

    def take(self, end: int) -> str:
        self._use()
        return super().take(end)

    def foresee(self, text: str) -> Sight:
        self._use()
        return super().foresee(text)


@dataclass(frozen=True, slots=True)
class Counted(Node):
    """A body during which a failing cursor counts its uses."""

    body: Node

    def first(self, spelling: Spelling) -> First:
        return self.body.first(spelling)

    def run(self, at: Cursor) -> Steps:
        assert isinstance(at, FailingCursor)
        inner = self.body.run(at)
        try:
            while True:
                at.nodes_run = True
                next(inner)
                at.nodes_run = False
                yield
        except StopIteration:
            return True
        finally:
            at.nodes_run = False

    def grammar(self, g: object) -> str:
        return ""


BROKEN = replace(
    format_named("hermes"), name="broken", body=Prose(MarkedRegion("<f>", CallNode(Seq(Json(), Broken()))))
)


@pytest.mark.parametrize("cuts", [None, []])
def test_what_follows_a_fault_is_content_and_the_stream_ends_in_order(cuts: list[int] | None) -> None:
    events = run(PLAIN.spell('before <f>{"a": 1} and <f>after'), cuts, fmt=BROKEN)
    assert texts(events) == 'before <f>{"a": 1} and <f>after'
    (problem,) = diagnostics(events)
    assert (problem.kind, problem.index) == ("failed", None)
    assert "IndexError" in problem.message
    assert "character 18" in problem.message
    assert isinstance(problem.cause, IndexError)
    assert started(events) == []


def test_a_call_that_was_told_before_the_fault_stays_open() -> None:
    call = CallNode(Seq(Capture("name", "["), "[", Start(), Json(), Broken()))
    events = run(
        PLAIN.spell('<f>get_time[{"a": 1} and more'), fmt=replace(BROKEN, body=Prose(MarkedRegion("<f>", call)))
    )
    assert [call.name for call in started(events)] == ["get_time"]
    assert "".join(e.fragment for e in events if isinstance(e, CallArguments)) == '{"a": 1}'
    assert closed(events) == []
    assert [(problem.kind, problem.index) for problem in diagnostics(events)] == [("failed", 0)]
    assert texts(events) == " and more"


def test_a_fault_in_reasoning_makes_what_follows_content() -> None:
    thinks = replace(
        BROKEN, body=Seq(Thought("<think>", "</think>", regions=(MarkedRegion("<f>", CallNode(Broken())),)), Lit(""))
    )
    events = run(PLAIN.spell("<think>I will <f>go</think>"), fmt=thinks)
    assert texts(events, Reasoning) == "I will <f>"
    assert texts(events) == "go</think>"


def test_a_fault_drops_what_was_read_of_a_call_where_malformed_ones_are_dropped() -> None:
    stream = parser_for(BROKEN, PLAIN, TOOLS, policy=Policy(malformed="drop"))
    events = stream.feed(PLAIN.spell('a <f>{"a": 1} b')) + stream.close()
    assert texts(events) == "a  b"


def test_a_fault_at_the_end_of_the_stream_loses_nothing() -> None:
    ends = replace(BROKEN, body=Seq(Prose(), Broken()))
    events = run(PLAIN.spell("all of it"), fmt=ends)
    assert (texts(events), [problem.kind for problem in diagnostics(events)]) == ("all of it", ["failed"])


@given(messages, st.integers(1, 400), st.lists(st.integers(0, 10_000), max_size=8))
def test_wherever_a_format_fails_the_stream_goes_on_and_loses_nothing_that_follows(
    told: Told, fails_at: int, cuts: list[int]
) -> None:
    calls = CallEvents(new_call_ids(), lambda end: ())
    cursor = FailingCursor(calls, Spelling({}), tools={}, prompt_tail="", forget=lambda offset: None)
    cursor.fails_at = fails_at
    fmt = format_named(told.family.format)
    machine = Machine(replace(fmt, body=Counted(fmt.body)), cursor)
    text = told.text
    bounds = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    events: list[Event] = []
    failed = None
    for a, b in itertools.pairwise(bounds):
        machine.feed(text[a:b])
        events += calls.drain()
        if failed is None and any(problem.kind == "failed" for problem in diagnostics(events)):
            failed = b
    machine.close("")
    events += calls.drain()
    if failed is not None:
        assert texts(events).endswith(text[failed:])
        assert isinstance(events[-1], Content) or events[-1] == diagnostics(events)[-1]
    assert len(diagnostics(events)) == (cursor.used >= fails_at)
    assert [call.index for call in started(events)] == list(range(len(started(events))))
    assert len(started(events)) - len(closed(events)) in (0, 1)
