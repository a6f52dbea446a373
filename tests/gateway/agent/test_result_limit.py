"""A result that is too long is cut before anybody tokenizes it, and a block that was cut has no ids any more."""

import pytest

from gateway.agent.results.result_shortening import cut, shorten
from gateway.proxy.result_tokens import IdPiece
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
LEAF = {"ai.codec/ids": [1, 2, 3]}


def block(text: str) -> dict[str, object]:
    return {"type": "text", "text": text, "_meta": LEAF, "annotations": {"priority": 1}}


def test_a_block_that_is_cut_loses_the_ids_that_spell_the_whole_of_it() -> None:
    result = {"content": [block("x" * 1000), block("short")], "isError": False}

    shortened = shorten(result, 4)

    cut, kept = shortened["content"]
    assert cut == {"type": "text", "text": "x" * len(cut["text"]), "_meta": {}, "annotations": {"priority": 1}}
    assert 4 <= len(cut["text"]) < 1000
    assert kept == block("short")
    assert shortened["isError"] is False
    assert result["content"][0]["_meta"] == LEAF


def test_a_result_that_fits_is_left_as_it_is() -> None:
    result = {"content": [block("short")]}
    assert shorten(result, 4) is result


@pytest.mark.parametrize(("length", "shortened", "whole"), [(100, False, True), (101, False, False), (60, True, False)])
def test_ids_are_cut_and_end_in_a_note_only_where_some_are_missing(
    length: int, *, shortened: bool, whole: bool
) -> None:
    pieces = (IdPiece(tuple(TINY.encode("a" * length)), "shim"),)

    shown, is_whole = cut(pieces, 100, TINY, shortened=shortened)

    assert is_whole is whole
    text = TINY.decode([token for piece in shown for token in piece.ids])
    assert (shown == pieces) is whole
    assert text.endswith("\n[cut: only the first 100 tokens are shown]") is not whole
