"""Results between a turn's calls and the next turn: cut to what fits as the template shows them, and in order."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.calls.runner import FinishedCall
from gateway.agent.calls.splices import fitted, parts_of, spans_of_result
from gateway.agent.events import SplicedPart, ToolFinished
from gateway.agent.turn import NOTE, Repeats
from gateway.engine.rendering.foreign_text import Fit
from gateway.engine.rendering.scaffold import Scaffold
from gateway.observe.trajectories import Span
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
ESCAPED = Fit(quote='\\"')
QUESTION = [{"role": "user", "content": "What is it?"}]


def ids(text: str) -> tuple[int, ...]:
    return tuple(TINY.encode(text))


def finished(
    text: str,
    source: Literal["leaf", "shim", "gateway"] = "shim",
    call_id: str = "call_1",
    arguments: str = "{}",
    **more: Any,
) -> FinishedCall:
    pieces = (IdPiece(ids(text), "leaf" if source == "leaf" else "shim"),)
    counts = (len(pieces[0].ids), 0) if source == "leaf" else (0, len(pieces[0].ids))
    told = ToolFinished(call_id, "say", arguments, text, source, *counts, more.pop("is_error", False), 0.5)
    return FinishedCall(pieces, told, 0.25, **more)


def scaffold(*fits: Fit) -> Scaffold:
    return Scaffold((ids("<"), *[ids(">")] * len(fits)), fits)


async def shown(stage: Any, around: Scaffold, outcomes: Sequence[FinishedCall], most: Sequence[int]) -> Any:
    return await fitted(await stage.agent.open(QUESTION), around, outcomes, most)


@pytest.mark.anyio
async def test_result_that_a_template_shows_as_it_is_keeps_its_ids(open_stage):
    outcomes = [finished("say", "leaf"), finished('"')]
    around = scaffold(ESCAPED, Fit())
    async with open_stage() as stage:
        # What fits need not be less than it was.
        assert await shown(stage, around, outcomes, [3, 0]) == (around, outcomes)


@pytest.mark.anyio
@pytest.mark.parametrize(("source", "told"), [("leaf", "shim"), ("shim", "shim"), ("gateway", "gateway")])
async def test_ids_that_a_template_escapes_are_the_gateways_own(open_stage, source, told):
    outcome = finished('a"b', source)
    async with open_stage() as stage:
        _, (changed,) = await shown(stage, scaffold(ESCAPED), [outcome], [4])

    assert changed.pieces == (IdPiece(ids('a\\"b'), "shim"),)
    assert changed.finished == replace(outcome.finished, source=told, leaf_ids=0, shim_ids=4)
    assert (changed.ids_seconds, changed.server) == (outcome.ids_seconds, outcome.server)


@pytest.mark.anyio
@pytest.mark.parametrize("most", [50, 64, 100, 129, 500])
async def test_of_a_result_that_grows_in_the_template_as_much_is_shown_as_fits(open_stage, most):
    text = '"' * 600
    async with open_stage() as stage:
        _, (changed,) = await shown(stage, scaffold(ESCAPED), [finished(text, "leaf")], [most])

    told = TINY.decode(changed.ids)
    written, _, note = told.partition("\\n[cut: only the first ")
    assert len(changed.ids) <= most
    # The least step is a quote, which takes two ids; one in 64 may stay free.
    assert len(changed.ids) > most - 2 * (2 + most // 64)
    assert set(written) == set('\\"')
    assert note.endswith(" tokens are shown]")
    assert (changed.finished.leaf_ids, changed.finished.shim_ids) == (0, len(changed.ids))
    assert changed.finished.said == text
    assert (changed.kept, changed.defined) == (None, ())


@pytest.mark.anyio
async def test_each_result_is_cut_to_its_own_room(open_stage):
    outcomes = [finished('"' * 200, call_id=f"call_{n}") for n in range(2)]
    async with open_stage() as stage:
        _, changed = await shown(stage, scaffold(ESCAPED, ESCAPED), outcomes, [100, 400])

    assert [len(each.ids) <= 100 for each in changed] == [True, False]
    assert changed[1].ids == ids('\\"' * 200)


@pytest.mark.anyio
@pytest.mark.parametrize("most", [0, 1, 2])
async def test_room_for_hardly_anything_is_filled_and_not_exceeded(open_stage, most):
    async with open_stage() as stage:
        _, (changed,) = await shown(stage, scaffold(ESCAPED), [finished('é"' * 9)], [most])

    assert len(changed.ids) <= most
    assert "\ufffd" not in TINY.decode(changed.ids)


@pytest.mark.anyio
@pytest.mark.parametrize(("text", "whole"), [("{}", True), (" [1]", True), ("a{}", False), (" " * 8 + "{}", False)])
async def test_template_that_reads_results_is_given_those_that_look_like_json(open_stage, monkeypatch, text, whole):
    async def reads() -> bool:
        return True

    async def scaffold_with(shape: Any, end: Any, texts: Sequence[str]) -> Scaffold:
        return Scaffold((ids(f"<{'|'.join(texts)}>"),), ())

    outcomes = [finished("plain"), finished(text, "leaf")]
    around = scaffold(Fit(), Fit())
    async with open_stage() as stage:
        monkeypatch.setattr(stage.route.ready().template, "reads_results", reads)
        monkeypatch.setattr(stage.route.ready().template, "scaffold_with", scaffold_with)
        told, changed = await shown(stage, around, outcomes, [99, 99])

    if not whole:
        assert (told, changed) == (around, outcomes)
        return
    assert told.pieces == (ids(f"<plain|{text}>"), (), ())
    assert [each.ids for each in changed] == [(), ()]
    assert [(each.finished.source, each.finished.leaf_ids, each.finished.shim_ids) for each in changed] == [
        ("shim", 0, 0)
    ] * 2


def test_parts_of_a_splice_stand_in_order_and_none_is_empty():
    first = finished("one", "leaf", call_id="a")
    first = replace(first, pieces=(*first.pieces, IdPiece(ids("two"), "shim"), IdPiece((), "leaf")))
    around = Scaffold((ids("<"), (), ids(">")), (Fit(), Fit()))

    assert parts_of(around, [first, finished("x", call_id="b")]) == (
        SplicedPart(ids("<"), "scaffold"),
        SplicedPart(ids("one"), "leaf", "a"),
        SplicedPart(ids("two"), "shim", "a"),
        SplicedPart(ids("x"), "shim", "b"),
        SplicedPart(ids(">"), "scaffold"),
    )


def test_spans_of_a_result_name_its_tool_server_and_sources_and_an_error_is_one():
    outcome = finished("one", "leaf", server="up")
    outcome = replace(outcome, pieces=(*outcome.pieces, IdPiece(ids("more"), "shim")))
    failed = replace(outcome, finished=replace(outcome.finished, is_error=True))

    assert spans_of_result(outcome) == (Span("leaf", 3, "say", "up"), Span("shim", len(ids("more")), "say", "up"))
    assert spans_of_result(failed) == (Span("error", 3 + len(ids("more")), "say", "up"),)


def noted(repeats: Repeats, *turn: FinishedCall) -> list[str]:
    return [TINY.decode(each.ids) for each in repeats.noted(turn, TINY)]


def test_repeated_turn_is_noted_beside_its_last_result_alone():
    repeats = Repeats(2)
    turn = finished("1"), finished("2", "leaf")
    assert noted(repeats, *turn) == ["1", "2"]
    assert repeats.noted(turn, TINY) == [
        turn[0],
        replace(
            turn[1],
            pieces=(*turn[1].pieces, IdPiece(ids(NOTE.format(count=2)), "shim")),
            finished=replace(turn[1].finished, shim_ids=len(ids(NOTE.format(count=2)))),
        ),
    ]


@pytest.mark.parametrize(("other", "same"), [('{"a": 1', True), ('{"a":1', False), ("[" * 100_000, False)])
def test_arguments_that_are_no_json_are_compared_as_they_are(other: str, same: bool):
    repeats = Repeats(2)
    noted(repeats, finished("1", arguments='{"a": 1'))

    assert ("2 times" in noted(repeats, finished("1", arguments=other))[0]) is same


@given(st.lists(st.sampled_from("ab"), max_size=12), st.integers(0, 4))
def test_turn_is_noted_from_the_so_manyth_time_on_that_it_comes_in_a_row(turns: list[str], most: int):
    repeats, row = Repeats(most), 0
    for number, said in enumerate(turns):
        row = row + 1 if number and said == turns[number - 1] else 1
        (told,) = noted(repeats, finished(said))
        assert (told != said) is (0 < most <= row)
        assert repeats.are_over is (0 < most < row)
        assert ("No more calls" in told) is repeats.are_over
        assert told == said or f"made this call {row} times" in told
