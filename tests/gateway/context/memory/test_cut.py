"""A turn is cut where its client saw it end, inside a token if need be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.context.memory.remembered import cut_turn
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

TINY = tiny_map()
THOUGHT = "<think>\nIt is the same\n</think>\n\n"


@given(st.text("ab é東😀\n", max_size=12), st.text("ab é東😀\n", max_size=8), st.sampled_from(("", THOUGHT)))
def test_cut_turn_says_what_was_told_and_keeps_the_ids_before_it(told: str, rest: str, lead: str) -> None:
    ids = TINY.encode(lead + told + rest, specials=True)
    cut = cut_turn(ids, told + rest, told, TINY)

    if not told:
        assert cut is None
        return
    assert cut is not None
    assert TINY.decode(cut) == lead + told
    same = next((n for n, (mine, theirs) in enumerate(zip(cut, ids, strict=False)) if mine != theirs), len(cut))
    assert all(len(TINY.decode(ids[:count])) >= len(lead + told) for count in range(same + 1, len(ids) + 1))


@pytest.mark.parametrize(("content", "told"), [("the the", "the"), ("aXa", "a"), ("same", "s")])
def test_what_was_told_may_stand_again_behind_the_cut(content: str, told: str) -> None:
    ids = TINY.encode(THOUGHT + content, specials=True)

    assert TINY.decode(cut_turn(ids, content, told, TINY) or []) == THOUGHT + told


def test_text_that_is_not_the_turns_is_not_cut_from_it() -> None:
    assert cut_turn(TINY.encode("So."), "No.", "No", TINY) is None


END = TINY.special_tokens["<|im_end|>"]


@each_of(
    ("ids", "content", "told", "cut"),
    [
        # Between two tokens, and within one.
        (TINY.encode("hello world"), "hello world", "hello", TINY.encode("hello")),
        (TINY.encode("hello world"), "hello world", "hello wo", [*TINY.encode("hello"), *TINY.encode(" wo")]),
        (TINY.encode("hello world"), "hello world", "hel", TINY.encode("hel")),
        (TINY.encode("hello world"), "hello world", "hello world", TINY.encode("hello world")),
        (TINY.encode("{hello"), "hello", "he", TINY.encode("{he")),
        # The token that ends a turn goes where its text does not belong to the content.
        ([*TINY.encode("hello"), END], "hello", "hello", TINY.encode("hello")),
        # What stands before the content is kept, though the content stands there too.
        (TINY.encode("ab|ab"), "ab", "a", TINY.encode("ab|a")),
        # Inside a character that a client can't have seen in part.
        (TINY.encode("éé"), "éé", "é", TINY.encode("é")),
        (TINY.encode("ab"), "ab", "", None),
        (TINY.encode("ab"), "cd", "c", None),
        ([], "ab", "a", None),
    ],
)
def test_turn_is_cut_at_exact_ids(ids: list[int], content: str, told: str, cut: list[int] | None) -> None:
    assert cut_turn(ids, content, told, TINY) == cut


def test_ids_without_a_text_stay_where_they_are_and_are_not_looked_for() -> None:
    ids = [END, *TINY.encode("ab"), END, *TINY.encode("cd")]

    assert cut_turn(ids, "abcd", "abc", TINY, hidden={END}) == [END, *TINY.encode("ab"), END, *TINY.encode("c")]
    assert cut_turn(ids, "abcd", "ab", TINY, hidden={END}) == [END, *TINY.encode("ab"), END]
    assert cut_turn(ids, "abcd", "abc", TINY) is None
