"""When a prompt continues what a slot holds, and where a cache that can't be cut can go back to."""

import pytest

from gateway.engine.slots.slot import (
    Checkpoints,
    Hints,
    Slot,
    after_prompt,
    continued,
    goes_on,
    is_at,
    is_continued,
    longest_rested,
    reused,
    takes_over,
)
from tests.cases import each_of

HELD = [*range(100)]


@pytest.mark.parametrize(
    ("checkpoints", "prompt", "found"),
    [
        (None, [0, 1, 2, 9], 3),
        ((), [0, 1, 2, 9], 0),
        ((2, 3, 4), [0, 1, 2, 9], 3),
        ((4,), [0, 1, 2, 9], 0),
        # At its end every cache goes on.
        ((), [*HELD, 9], 100),
        ((), HELD, 100),
        ((50,), HELD[:99], 50),
    ],
)
def test_cache_goes_on_at_its_end_or_back_to_its_last_checkpoint_in_what_is_shared(
    checkpoints: Checkpoints, prompt: list[int], found: int
) -> None:
    assert reused(HELD, checkpoints, prompt) == found
    assert Slot(0, HELD, checkpoints=checkpoints).reused(prompt) == found


@each_of(
    ("before", "prompt", "cached", "after"),
    [
        (None, 1000, 0, None),
        # The engine said nothing: the one at the end is certain.
        ((7,), 1000, None, (996,)),
        ((7,), 4, None, ()),
        ((7,), 5, None, (1,)),
        ((), 1000, 0, (484, 996)),
        ((), 516, 0, (512,)),
        ((), 517, 0, (1, 513)),
        ((), 4, 0, ()),
        # Where the reused part ended, if that is nearer than a batch.
        ((), 1000, 600, (600, 996)),
        ((), 1000, 484, (484, 996)),
        ((), 100, 1, (1, 96)),
        ((), 1000, 483, (484, 996)),
        ((), 1000, 996, (996,)),
        # Those behind the place to which it went back are gone; two are kept.
        ((300, 400, 700), 1100, 400, (584, 1096)),
        ((300, 400, 700), 450, 400, (400, 446)),
        ((300, 400), 402, 400, (300, 400)),
    ],
)
def test_checkpoints_that_a_prompt_leaves(
    before: Checkpoints, prompt: int, cached: int | None, after: Checkpoints
) -> None:
    assert after_prompt(before, prompt, cached) == after


def test_slot_notes_its_checkpoints_only_from_what_was_answered() -> None:
    slot = Slot(0, checkpoints=(7,))
    slot.holds(HELD, at_rest=False, answered=False, cached=0)
    assert (slot.ids, slot.at_rest, slot.answered, slot.checkpoints) == (HELD, False, False, (7,))
    slot.holds(HELD, at_rest=True, answered=True, prompt=50, cached=0)
    assert (slot.at_rest, slot.answered, slot.checkpoints) == (True, True, (46,))
    slot.holds(HELD, at_rest=True, answered=True, cached=0)
    assert slot.checkpoints == (96,)


def test_conversation_is_known_by_the_name_of_its_last_answer() -> None:
    hints = Hints(answer="two", before="one")

    assert is_continued("one", hints)
    assert is_continued("two", hints)
    assert not is_continued("three", hints)
    assert not is_continued("", Hints())
    assert Slot(0, answer="one").is_continued_by(hints)
    assert not Slot(0).is_continued_by(Hints())


@pytest.mark.parametrize(("place", "there"), [(100, True), (85, True), (84, False), (101, False)])
def test_checkpoint_at_most_fifteen_ids_before_a_place_is_there(place: int, *, there: bool) -> None:
    assert is_at(100, (1, place)) is there
    assert not is_at(100, None)
    assert not is_at(100, ())


def test_prompt_continues_ids_of_which_it_shares_nine_tenths() -> None:
    assert (goes_on(HELD, 90), goes_on(HELD, 89)) == (True, False)
    assert (goes_on(HELD[:11], 10), goes_on(HELD[:11], 9)) == (True, False)
    assert (goes_on([], 1), goes_on([], 0)) == (True, False)


def test_ids_are_no_longer_needed_where_only_their_tail_differs_or_nothing_new_follows() -> None:
    long = [*range(1000)]

    assert takes_over(long, 984, [*long[:984], *range(5)])
    assert not takes_over(long, 983, [*long[:983], *range(5)])
    # The prompt was held whole, but for its last id at most.
    assert takes_over(long, 950, long[:950])
    assert takes_over(long, 950, [*long[:950], 1])
    assert not takes_over(long, 950, [*long[:950], 1, 2])
    assert not takes_over(long, 899, long[:899])


def test_slot_that_is_continued_is_the_owner_s_of_which_most_is_reused_and_of_equals_the_oldest() -> None:
    slots = [
        Slot(0, HELD[:20], "ada", used=4),
        Slot(1, HELD[:30], "ada", used=3),
        Slot(2, HELD[:30], "ada", used=2),
        Slot(3, HELD[:40], "eve", used=1),
        Slot(4, [*HELD[:40], *[7] * 20], "ada", used=0),
        Slot(5, [], "ada"),
    ]

    assert continued(slots, HELD, "ada") is slots[2]
    assert continued(slots, HELD[:28], "ada") is slots[2]
    assert continued(slots, HELD[:26], "ada") is slots[0]
    assert continued(slots, HELD, "eve") is slots[3]
    assert continued(slots, HELD, "bob") is None
    assert continued(slots, [*[9] * 50], "ada") is None
    assert continued([slots[5]], [], "ada") is None
    # Its last id that has to be shared is, and what stands before it is not.
    assert continued([Slot(0, HELD[:10], "ada")], [9, *HELD[1:]], "ada") is None


def test_slot_that_has_rested_longest_is_the_one_that_was_used_first() -> None:
    slots = [Slot(0, used=3), Slot(1, used=1), Slot(2, used=2)]

    assert longest_rested(slots) is slots[1]
