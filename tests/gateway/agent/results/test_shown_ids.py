"""What is shown of a kept result: its ids as they are, the words around them, and where what is shown ends."""

from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.results.id_slices import SpelledPart
from gateway.agent.results.large_results import ResultBeginning, Selection
from gateway.context.memory import KeptResult
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()
TEXT = "aaaa\nbbbb\ncccc\n"
"""Each of its characters is a token, and each of those of what is said about it."""
IDS = array("I", TINY.encode(TEXT))
RESULT = KeptResult("r_222222", "a", "up__say", TINY.map_id, len(IDS), (("shim", len(IDS)),), b"", "text of 3 lines")
LINES = (SpelledPart(0, 5, 1), SpelledPart(5, 10, 2), SpelledPart(10, 15, 3))
READ_ON = 'read on with codec_read_result(handle="r_222222", offset={})'
GO_ON = 'go on with codec_search_result(handle="r_222222", ..., offset={})'
FEWER = "select fewer, as in [0:9], to see the others"
DIGITS = 8
"""Tokens that are left for longer numbers."""


def text_of(pieces: Iterable[IdPiece]) -> str:
    return TINY.decode([token_id for piece in pieces for token_id in piece.ids])


def selection(by: Any, *parts: SpelledPart, **fields: Any) -> Selection:
    return Selection(RESULT, IDS, parts, **{"count": len(parts), "by": by, **fields})


def values() -> tuple[SpelledPart, ...]:
    return tuple(replace(part, label=f"$[{number}]") for number, part in enumerate(LINES))


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (
            selection("offset", SpelledPart(6, 15, 2)),
            "bbb\ncccc\n\n[from line 2: tokens 6 to 15 of 15 in r_222222; the end]",
        ),
        (
            selection("lines", SpelledPart(5, 14, 2)),
            f"bbbb\ncccc\n[from line 2: tokens 5 to 14 of 15 in r_222222; {READ_ON.format(14)}]",
        ),
        (
            selection("path", *values()[:2]),
            "[$[0]] aaaa\n\n[$[1]] bbbb\n\n[2 of 2 values in r_222222]",
        ),
        (
            selection("path", *values()[:2], count=3),
            f"[$[0]] aaaa\n\n[$[1]] bbbb\n\n[2 of 3 values in r_222222; {FEWER}]",
        ),
        (
            selection("search", *LINES[1:]),
            "[line 2, offset 5] bbbb\n\n[line 3, offset 10] cccc\n\n[2 of 2 places in r_222222]",
        ),
        (
            selection("search", LINES[0], count=2),
            f"[line 1, offset 0] aaaa\n\n[1 of 2 places in r_222222; {GO_ON.format(5)}]",
        ),
        (
            selection("search", LINES[0], is_whole=False),
            f"[line 1, offset 0] aaaa\n\n[1 of 1 or more places in r_222222; {GO_ON.format(5)}]",
        ),
    ],
)
def test_selected_places_stand_with_what_they_are_and_how_to_go_on(shown: Selection, text: str) -> None:
    assert text_of(shown.pieces(500, TINY)) == text


@pytest.mark.parametrize(
    ("shown", "longest"),
    [
        (
            selection("offset", SpelledPart(0, 15, 1)),
            f"\n[from line 1: tokens 0 to 14 of 15 in r_222222; {READ_ON.format(14)}]",
        ),
        (
            selection("path", SpelledPart(0, 11, 1, "$[0]"), SpelledPart(11, 15, 3, "$[1]")),
            f"\n[0 of 2 values in r_222222; {READ_ON.format(10)}; {FEWER}]",
        ),
        (selection("search", *LINES), f"\n[0 of 3 places in r_222222; {GO_ON.format(15)}]"),
        (
            selection("search", *LINES * 4, is_whole=False, count=100),
            f"\n[12 of 100 or more places in r_222222; {GO_ON.format(14)}]",
        ),
    ],
)
def test_places_fit_where_the_longest_words_around_them_do(shown: Selection, longest: str) -> None:
    most = len(TINY.encode(longest)) + DIGITS

    assert shown.fits(most, TINY)
    assert not shown.fits(most - 1, TINY)


def room(shown: Selection) -> int:
    """The most ids in which none of the places fits."""
    return next(most for most in range(1000) if shown.fits(most, TINY))


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (0, f"\n[from line 1: tokens 1 to 1 of 15 in r_222222; {READ_ON.format(1)}]"),
        (1, f"a\n[from line 1: tokens 1 to 2 of 15 in r_222222; {READ_ON.format(2)}]"),
        (13, f"aaa\nbbbb\ncccc\n[from line 1: tokens 1 to 14 of 15 in r_222222; {READ_ON.format(14)}]"),
        (14, "aaa\nbbbb\ncccc\n\n[from line 1: tokens 1 to 15 of 15 in r_222222; the end]"),
    ],
)
def test_as_much_is_shown_as_there_is_room_for(ids: int, text: str) -> None:
    shown = selection("offset", SpelledPart(1, 15, 1))

    assert text_of(shown.pieces(room(shown) + ids, TINY)) == text


@each_of(
    ("ids", "text"),
    [
        (0, f"\n[0 of 3 values in r_222222; {READ_ON.format(0)}; {FEWER}]"),
        (7, f"\n[0 of 3 values in r_222222; {READ_ON.format(0)}; {FEWER}]"),
        (8, f"[$[0]] a\n[1 of 3 values in r_222222; {READ_ON.format(1)}; {FEWER}]"),
        (12, f"[$[0]] aaaa\n\n[1 of 3 values in r_222222; {FEWER}]"),
        (24, f"[$[0]] aaaa\n\n[1 of 3 values in r_222222; {FEWER}]"),
        (25, f"[$[0]] aaaa\n\n[$[1]] bbbb\n\n[2 of 3 values in r_222222; {FEWER}]"),
        (37, f"[$[0]] aaaa\n\n[$[1]] bbbb\n\n[2 of 3 values in r_222222; {FEWER}]"),
        (38, "[$[0]] aaaa\n\n[$[1]] bbbb\n\n[$[2]] cccc\n\n[3 of 3 values in r_222222]"),
    ],
)
def test_only_the_first_place_is_shown_in_part(ids: int, text: str) -> None:
    shown = selection("path", *values())

    assert text_of(shown.pieces(room(shown) + ids, TINY)) == text


def test_search_goes_on_behind_the_last_place_that_is_shown() -> None:
    shown = selection("search", *LINES)
    first, second = "[line 1, offset 0] aaaa\n", "\n[line 2, offset 5] bbbb\n"
    both = len(TINY.encode(first)) + len(TINY.encode(second))

    pieces = shown.pieces(room(shown) + both, TINY)
    assert text_of(pieces) == f"{first}{second}\n[2 of 3 places in r_222222; {GO_ON.format(10)}]"
    pieces = shown.pieces(room(shown) + both - 1, TINY)
    assert text_of(pieces) == f"{first}\n[1 of 3 places in r_222222; {GO_ON.format(5)}]"


def test_words_around_the_places_are_cut_where_even_they_do_not_fit() -> None:
    shown = selection("search", *LINES)

    assert text_of(shown.pieces(10, TINY)) == "\n[0 of 3 p"


def test_search_that_finds_nothing_says_what_is_missing() -> None:
    shown = selection("search", missing="nothing")
    whole = len(TINY.encode("nothing"))

    assert shown.pieces(whole, TINY) == (IdPiece(tuple(TINY.encode("nothing")), "shim"),)
    assert shown.pieces(2, TINY) == (IdPiece(tuple(TINY.encode("nothing")[:2]), "shim"),)
    assert (shown.fits(whole, TINY), shown.fits(whole - 1, TINY)) == (True, False)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_shown_ids_come_from_where_the_results_came_from(counts: list[int], data: st.DataObject) -> None:
    ids = array("I", range(97, 97 + sum(counts)))
    named = [("leaf", "shim")[number % 2] for number in range(len(counts))]
    sources: Any = tuple((source, sum(counts[: number + 1])) for number, source in enumerate(named))
    each_source = [source for source, count in zip(named, counts, strict=True) for _ in range(count)]
    first = data.draw(st.integers(0, len(ids) - 1))
    last = data.draw(st.integers(first + 1, len(ids)))
    result = replace(RESULT, tokens=len(ids), sources=sources)

    *shown, _ = Selection(result, ids, (SpelledPart(first, last, 1),), 1, "offset").pieces(500, TINY)
    pairs = [(token_id, piece.source) for piece in shown for token_id in piece.ids]
    assert pairs == [*zip(ids[first:last], each_source[first:last], strict=True)]
    assert len(shown) == len({end for _, end in sources if first < end < last}) + 1


def beginning(ids: int, definitions: int = 0) -> ResultBeginning:
    result = replace(RESULT, tokens=5000, sources=(("leaf", 3), ("shim", 5000)))
    return ResultBeginning(result, (*TINY.encode("ab" * (ids // 2)),), (*TINY.encode("d" * definitions),))


def note(shown: int) -> str:
    return (
        f"\n[cut: the first {shown} of 5000 tokens are shown; the whole result is kept as r_222222: text of 3 lines. "
        'Find words in it with codec_search_result(handle="r_222222", text="..."), or '
        f"{READ_ON.format(shown)}.]"
    )


AROUND = len(TINY.encode(note(1200))) + DIGITS


def test_beginning_stands_before_the_words_and_the_definitions() -> None:
    cut = beginning(1200, definitions=10)
    pieces, shown = cut.pieces(1200, TINY)

    assert shown == 1200 - AROUND - 10
    assert pieces == (
        IdPiece(cut.ids[:3], "leaf"),
        IdPiece(cut.ids[3:shown], "shim"),
        IdPiece((*TINY.encode(note(shown)), *cut.definitions), "shim"),
    )
    assert cut.own == (IdPiece(cut.ids[:3], "leaf"), IdPiece(cut.ids[3:], "shim"))


def test_beginning_for_which_there_is_no_room_is_only_words_and_cut() -> None:
    assert beginning(1200).pieces(10, TINY) == ((IdPiece((*TINY.encode(note(0))[:10],), "shim"),), 0)


@pytest.mark.parametrize(
    ("ids", "definitions", "fits"),
    [(1200, 900 - AROUND, True), (1200, 901 - AROUND, False), (1400, 900 - AROUND, True), (1198, 900 - AROUND, False)],
)
def test_beginning_fits_where_a_quarter_of_what_is_shown_is_its_own(ids: int, definitions: int, fits: bool) -> None:
    assert beginning(ids, definitions).fits(1200, TINY) is fits
