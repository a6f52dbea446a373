"""What a principal may be told of the cache: as long as it is the only one, what its generations had."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.interface import shared_prefix
from gateway.engine.slots.allocation import LeftBehind

IDS = st.lists(st.integers(0, 2), max_size=8)


@given(st.lists(IDS, max_size=20), IDS)
def test_a_single_principal_is_told_what_any_of_its_generations_had(noted: list[list[int]], prompt: list[int]) -> None:
    left = LeftBehind()
    for ids in noted:
        left.enter("ada")
        left.note(list(ids))
    assert left.own(prompt) == max((shared_prefix(ids, prompt) for ids in noted), default=0)
    assert not left.several


@given(st.lists(IDS, max_size=40), IDS)
def test_memory_is_bounded_and_what_is_forgotten_is_told_as_less(noted: list[list[int]], prompt: list[int]) -> None:
    left, whole = LeftBehind(max_ids=20, max_entries=3), LeftBehind()
    for ids in noted:
        left.note(list(ids))
        whole.note(list(ids))
    assert left.size <= 20
    assert left.own(prompt) <= whole.own(prompt)


def test_with_the_second_principal_all_is_forgotten_for_good() -> None:
    left = LeftBehind()
    for owner in ("ada", "eve", "ada"):
        left.enter(owner)
        left.note([1, 2, 3])
    assert left.several
    assert (left.own([1, 2, 3]), left.size) == (0, 0)


@pytest.mark.parametrize(
    ("held", "prompt", "shared"),
    [([], [1], 0), ([1], [], 0), ([1, 2, 3], [1, 2, 3, 4], 3), ([1, 2, 9], [1, 2, 3], 2), ([4], [5], 0)],
)
def test_the_common_prefix_is_counted_in_ids(held: list[int], prompt: list[int], shared: int) -> None:
    assert shared_prefix(held, prompt) == shared
