"""What a principal may be told of the cache: the longest beginning that its own requests had, from a bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.left_behind import LeftBehind, shared_prefix

IDS = st.lists(st.integers(0, 2), max_size=8)


@given(st.lists(st.tuples(st.sampled_from("abc"), IDS), max_size=20), IDS)
def test_no_more_is_told_than_the_principals_own_generations_had(noted: list[tuple[str, list[int]]], prompt: list[int]):
    left = LeftBehind()
    for owner, ids in noted:
        left.note(owner, list(ids))
    for owner in "abc":
        own = max((shared_prefix(ids, prompt) for who, ids in noted if who == owner), default=0)
        assert left.own(owner, prompt) == own


@given(st.lists(st.tuples(st.sampled_from("abc"), IDS), max_size=40), IDS)
def test_memory_is_bounded_and_what_is_forgotten_is_told_as_less(noted: list[tuple[str, list[int]]], prompt: list[int]):
    left, whole = LeftBehind(most=20, entries=3), LeftBehind()
    for owner, ids in noted:
        left.note(owner, list(ids))
        whole.note(owner, list(ids))
    assert left.size <= 20
    for owner in "abc":
        assert left.own(owner, prompt) <= whole.own(owner, prompt)


@pytest.mark.parametrize(
    ("held", "prompt", "shared"),
    [([], [1], 0), ([1], [], 0), ([1, 2, 3], [1, 2, 3, 4], 3), ([1, 2, 9], [1, 2, 3], 2), ([4], [5], 0)],
)
def test_the_common_prefix_is_counted_in_ids(held: list[int], prompt: list[int], shared: int) -> None:
    assert shared_prefix(held, prompt) == shared
