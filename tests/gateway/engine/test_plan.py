"""Which slot a prompt gets, and what is planned for it: by what costs least, and by what its own principal has left."""

from dataclasses import replace

import pytest

from gateway.engine.slots.slot import Hints, Slot
from gateway.engine.slots.slot_directory import SlotFile
from gateway.engine.slots.swap_plan import KeptFiles, Paging, Plan
from tests.gateway.engine.slot_engine import FixedRates

GOES_ON = Hints(answer="two", before="one")


def talk(number: int, size: int = 50) -> list[int]:
    """A conversation that begins like no other."""
    return [1000 * number + n for n in range(size)]


def held(number: int, ids: list[int], owner: str = "ada", *, used: int = 0, **more: object) -> Slot:
    slot = Slot(number, ids, owner, used=used, at_rest=True, answered=True)
    return replace(slot, **more)


def a_file(ids: list[int], owner: str = "ada", **more: object) -> SlotFile:
    return replace(SlotFile("", ids, owner, len(ids), "", len(ids)), **more)


def paging(*files: SlotFile, process: float = 1e-3, move: float = 1e-6, isolate: bool = False) -> Paging:
    """Bytes are ids; to process an id takes a thousand times as long as to move it."""
    made = Paging(10**6, FixedRates(process, move), isolate=isolate)
    for file in files:
        made.kept.add(file)
    return made


def test_new_conversation_gets_the_slot_that_has_rested_longest() -> None:
    free = [held(0, talk(1), used=2), held(1, talk(2), used=1)]

    assert paging().choose(free, talk(3), "ada") is free[1]


def test_conversation_gets_the_slot_that_it_goes_on_in() -> None:
    free = [held(0, talk(1), used=2), held(1, talk(2), used=1)]

    assert paging().choose(free, [*talk(1), 5], "ada") is free[0]
    assert paging().choose(free, [*talk(1), 5], "eve") is free[1]


def test_conversation_is_known_by_its_answer_though_its_ids_have_changed() -> None:
    free = [held(0, talk(1), used=2, answer="one"), held(1, talk(2), "eve", used=1, answer="one"), Slot(2)]
    changed = [*talk(1, 30), *talk(3)]

    assert paging().choose(free, changed, "ada", GOES_ON) is free[0]
    assert paging().choose(free, changed, "bob", GOES_ON) is free[2]
    # Nothing but that answer needs what is there; without its name, more is given up than is reused.
    dear = paging(process=1e-6, move=1e-3)
    assert dear.choose(free, changed, "ada", GOES_ON) is free[0]
    assert dear.choose(free, changed, "ada") is free[2]


def test_slot_of_which_something_is_reused_is_taken_only_if_that_costs_less_than_to_bring_back_what_goes() -> None:
    free = [held(0, [*talk(1, 200), *talk(2, 200)], used=2), held(1, [], used=1, answered=False)]
    prompt = [*talk(1, 200), *talk(3)]

    assert paging().choose(free, prompt, "ada") is free[0]
    assert paging(process=1e-3, move=1e-3).choose(free, prompt, "ada") is free[1]
    # What was never answered is no loss.
    free[0].answered = False
    assert paging().choose(free, prompt, "ada") is free[1]


def test_file_is_restored_where_the_least_is_lost() -> None:
    free = [held(0, talk(2), used=2), held(1, talk(4, 500), used=1)]

    assert paging(a_file(talk(1))).choose(free, [*talk(1), 5], "ada") is free[1]
    assert paging(a_file(talk(1, 40))).choose([held(0, talk(1), used=2), free[1]], [*talk(1), 5], "ada").number == 0


def test_prompt_that_goes_on_in_its_slot_needs_no_plan() -> None:
    assert paging().plan(held(0, talk(1)), [*talk(1), 5], "ada") == Plan()
    assert paging().plan(held(0, talk(1), answer="one"), [*talk(1, 20), 7], "ada", GOES_ON) == Plan(held=True)
    assert paging().plan(held(0, talk(1), answer="one"), [*talk(1, 20), 7], "eve", GOES_ON).held is False


def test_other_prompt_saves_what_is_there_and_restores_its_own_file() -> None:
    file = a_file(talk(2))
    plan = paging(file).plan(held(0, talk(1)), [*talk(2), 5], "ada")

    assert plan == Plan(save=True, restore=file, own=file, goes_on=True, told=50)


def test_file_that_is_not_worth_its_move_stays_where_it_is() -> None:
    file = a_file(talk(2))
    for process, pays in ((1.0, False), (1.01, True)):
        plan = paging(file, process=process, move=1.0).plan(Slot(0), [*talk(2), 5], "ada")
        assert (plan.restore is file) is pays
        assert (plan.own is file) is pays
        assert plan.told == 50 * pays


def test_file_is_worth_only_what_the_slot_does_not_have() -> None:
    file = a_file(talk(2))
    slot = held(0, [*talk(2, 30), 9])

    assert paging(file, process=2.0, move=1.0).plan(slot, [*talk(2), 5], "ada").own is None
    assert paging(file, process=2.6, move=1.0).plan(slot, [*talk(2), 5], "ada").own is file


def test_file_of_another_answer_that_only_begins_alike_does_not_go_on() -> None:
    file = a_file([*talk(2, 45), 7, 7, 7, 7, 7], answer="one")
    prompt = [*talk(2, 45), *talk(3, 30)]

    assert not paging(replace(file, ids=[*talk(2, 20), *talk(4, 30)])).plan(Slot(0), prompt, "ada").goes_on
    assert paging(file).plan(Slot(0), prompt, "ada").goes_on
    assert paging(replace(file, ids=[*talk(2, 20), *talk(4, 30)])).plan(Slot(0), prompt, "ada", GOES_ON).goes_on
    assert not paging(replace(file, shared=True)).plan(Slot(0), prompt, "ada", GOES_ON).goes_on


def test_file_of_another_principal_adds_to_what_is_reused_and_nobody_is_told() -> None:
    theirs, own = a_file(talk(2), "eve"), a_file(talk(2, 20))
    prompt = [*talk(2), 5]

    plan = paging(theirs).plan(Slot(0), prompt, "ada")
    assert (plan.restore, plan.own, plan.told) == (theirs, None, 0)
    plan = paging(theirs, own).plan(Slot(0), prompt, "ada")
    assert (plan.restore, plan.own, plan.told) == (theirs, own, 20)
    assert paging(theirs, isolate=True).plan(Slot(0), prompt, "ada").restore is None
    # It must bring more than there is, and pay for its own move.
    assert paging(theirs).plan(held(0, talk(2), "eve"), prompt, "ada").restore is None
    assert paging(theirs, process=1.0, move=1.0).plan(Slot(0), prompt, "ada").restore is None
    assert paging(theirs, own, process=1.6, move=1.0).plan(Slot(0), prompt, "ada").restore is own
    assert paging(theirs, own, process=1.7, move=1.0).plan(Slot(0), prompt, "ada").restore is theirs


def test_what_others_have_left_in_the_slot_is_used_instead_of_a_file_that_brings_no_more() -> None:
    own = a_file(talk(2, 40))
    for there, restored in ((39, own), (40, None), (45, None)):
        plan = paging(own).plan(held(0, [*talk(2, there), 9, 9], "eve"), [*talk(2), 5], "ada")
        assert (plan.restore, plan.own, plan.told) == (restored, own, 40)
    unanswered = held(0, [*talk(2, 45), 9, 9], "eve", answered=False)
    assert paging(own).plan(unanswered, [*talk(2), 5], "ada").restore is own


def test_cache_that_goes_back_is_told_of_only_at_its_end() -> None:
    file = a_file(talk(2), checkpoints=(30,))

    assert paging(file).plan(Slot(0, checkpoints=()), [*talk(2), 5], "ada").told == 50
    plan = paging(file).plan(Slot(0, checkpoints=()), [*talk(2, 40), *talk(3)], "ada")
    assert (plan.restore, plan.told) == (file, 0)


@pytest.mark.parametrize(("shared", "beginning"), [(31, 0), (32, 32), (100, 100)])
def test_beginning_that_two_conversations_share_is_kept_from_32_ids_on(shared: int, beginning: int) -> None:
    slot = held(0, [*talk(1, shared), *talk(2, 60)])
    plan = paging().plan(slot, [*talk(1, shared), *talk(3, 60)], "ada")

    assert plan == Plan(save=True, beginning=beginning)
    # Of a prompt that has nothing of its own, or where it does not pay, none is.
    assert paging().plan(slot, talk(1, shared), "ada").beginning == 0
    assert paging(process=2.0, move=1.0).plan(slot, [*talk(1, shared), *talk(3, 60)], "ada").beginning == 0


@pytest.mark.parametrize(("known", "beginning"), [(360, 0), (359, 400), (100, 400)])
def test_beginning_that_is_known_but_for_a_tenth_is_not_kept_again(known: int, beginning: int) -> None:
    slot = held(0, [*talk(1, 400), *talk(2, 60)])
    kept = paging(a_file(talk(1, known), shared=True))

    assert kept.plan(slot, [*talk(1, 400), *talk(3, 60)], "ada").beginning == beginning


@pytest.mark.parametrize(("size", "kept"), [(31, 0), (32, 32), (100, 100)])
def test_preamble_of_a_cache_that_can_not_be_cut_is_kept_at_the_first_conversation(size: int, kept: int) -> None:
    hints, slot = Hints(preamble=size), Slot(0, checkpoints=())
    prompt = [*talk(1, size), *talk(2)]

    assert paging().plan(slot, prompt, "ada", hints).beginning == kept
    assert paging().plan(Slot(0), prompt, "ada", hints).beginning == 0
    assert paging().plan(slot, prompt, "ada").beginning == 0
    assert paging(process=2.0, move=1.0).plan(slot, prompt, "ada", hints).beginning == 0
    assert paging(a_file(talk(1, size), shared=True)).plan(slot, prompt, "ada", hints).beginning == 0


@pytest.mark.parametrize(("known", "kept"), [(90, 0), (89, 100)])
def test_preamble_that_is_known_but_for_a_tenth_is_not_kept_again(known: int, kept: int) -> None:
    made = paging(a_file(talk(1, known), shared=True))
    slot = Slot(0, checkpoints=())

    assert made.plan(slot, [*talk(1, 100), *talk(2)], "ada", Hints(preamble=100)).beginning == kept


def test_slot_is_saved_if_it_holds_more_than_files_do_and_that_pays() -> None:
    slot = held(0, talk(1))

    assert paging().is_worth_saving(slot)
    assert not paging().is_worth_saving(replace(slot, answered=False))
    assert not paging().is_worth_saving(replace(slot, owner=None))
    assert not paging(a_file(talk(1))).is_worth_saving(slot)
    assert paging(a_file(talk(1), "eve")).is_worth_saving(slot)
    # It is saved and restored: twice 50 ids are moved.
    assert not paging(process=2.0, move=1.0).is_worth_saving(slot)
    assert paging(process=2.1, move=1.0).is_worth_saving(slot)
    assert not paging(a_file(talk(1, 10)), process=2.5, move=1.0).is_worth_saving(slot)
    assert paging(a_file(talk(1, 10)), process=2.6, move=1.0).is_worth_saving(slot)


def test_slot_whose_conversation_will_return_is_saved_before_it_loses_the_way_back() -> None:
    hints = Hints(question=40, returns=True, answer="two", before="one")
    slot = held(0, talk(1), answer="one", checkpoints=(36,))
    prompt = [*talk(1), 5]

    def saves(slot: Slot, hints: Hints, *files: SlotFile, process: float = 1e-3, move: float = 1e-6) -> bool:
        return paging(*files, process=process, move=move).plan(slot, prompt, "ada", hints).save

    assert saves(slot, hints)
    assert not saves(slot, replace(hints, returns=False))
    assert not saves(replace(slot, answered=False), hints)
    assert not saves(replace(slot, checkpoints=(10,)), hints)
    # A file from which it can go back there is as good.
    assert not saves(slot, hints, a_file(talk(1, 40), checkpoints=(36,)))
    assert saves(slot, hints, a_file(talk(1, 40), "eve", checkpoints=(36,)))
    assert not saves(slot, hints, process=2.5, move=1.0)
    assert saves(slot, hints, process=2.6, move=1.0)


def test_file_that_is_being_written_is_waited_for_if_it_brings_more_than_there_is() -> None:
    prompt = [*talk(1), 5]

    def waits(slot: Slot, *files: SlotFile, process: float = 1e-3, move: float = 1e-6) -> bool:
        made = paging(*files, process=process, move=move)
        return made.is_worth_waiting(slot, prompt, "ada", talk(1), None)

    assert waits(Slot(0))
    assert not waits(held(0, talk(1)))
    assert waits(held(0, talk(1), "eve"))
    assert waits(held(0, talk(1), mixed=True))
    assert not waits(Slot(0), a_file(talk(1)))
    assert not waits(Slot(0), process=1.0, move=1.0)
    assert waits(Slot(0), process=1.1, move=1.0)
    assert not waits(Slot(0), a_file(talk(1, 20)), process=1.6, move=1.0)
    assert waits(Slot(0), a_file(talk(1, 20)), process=1.7, move=1.0)
    assert not paging().is_worth_waiting(Slot(0), prompt[:40], "ada", talk(1), ())
    # One id may be worth it where moving costs nothing.
    assert paging(process=1.0).is_worth_waiting(Slot(0), [1, 2], "ada", [1], None)
    assert not paging(process=1.0).is_worth_waiting(Slot(0), [1, 2], "ada", [3], None)


def test_files_know_which_slot_their_conversation_is_in() -> None:
    one, two, other, shared = (
        a_file(talk(1), answer="one", slot=3),
        a_file(talk(2), answer="x", slot=0),
        a_file(talk(3), "eve", answer="one", slot=0),
        a_file(talk(4), answer="one", shared=True),
    )
    made = paging(one, two, other, shared)
    made.take(0, Plan(own=one, goes_on=True), "ada", GOES_ON)
    assert [each.slot for each in (one, two, other, shared)] == [0, None, None, None]
    made.take(1, Plan(own=one, goes_on=False), "ada")
    assert one.slot is None
    two.slot = 2
    made.take(2, Plan(held=True), "ada")
    assert two.slot == 2
    made.take(2, Plan(), "ada")
    assert two.slot is None


def test_files_are_in_no_slot_of_an_engine_that_comes_up() -> None:
    file = a_file(talk(1), slot=1)
    made = paging(file)
    assert not made.fit("one")
    assert file.slot is None
    made.begin("one")
    assert made.fit("one")
    assert not made.fit("two")


def test_longest_file_is_the_one_of_which_most_is_reused() -> None:
    kept = KeptFiles(1000)
    one, two, eves = a_file(talk(1, 10)), a_file(talk(1, 20)), a_file(talk(1, 30), "eve")
    for file in (one, two, eves):
        kept.files.append(file)
    prompt = [*talk(1, 25), 7]

    assert kept.longest(prompt, "ada") == (two, 20)
    assert kept.longest(prompt, None) == (eves, 25)
    assert kept.longest(prompt, "bob") == (None, 0)
    assert kept.longest(prompt, "ada", 19) == (two, 20)
    assert kept.longest(prompt, "ada", 20) == (None, 20)
    # Its first ids are another's.
    assert kept.longest([9, *talk(1, 25)[1:]], None, 5) == (None, 5)
    assert kept.longest([], None) == (None, 0)


def test_worth_of_a_file_is_what_no_shared_beginning_has() -> None:
    kept = KeptFiles(10**6)
    before = a_file([*talk(1, 30), *talk(2, 10)])
    kept.add(before)
    assert before.density == 1
    beginning = a_file(talk(1, 30), shared=True)
    kept.add(beginning)
    assert (beginning.density, before.density) == (2, 0.25)
    after = a_file([*talk(1, 30), *talk(3, 70)])
    kept.add(after)
    assert after.density == 0.7
    longer, unrelated, empty = a_file(talk(1, 60), shared=True), a_file(talk(1, 60), "eve"), a_file([])
    for each in (longer, unrelated, empty):
        kept.add(each)
    assert (longer.density, unrelated.density, empty.density) == (1, 1, 0)
    assert kept.known_beginning(talk(1, 50), "ada") == 50
    assert kept.known_beginning(talk(1, 50), "eve") == 0


def test_newer_file_replaces_what_it_contains_of_its_owner() -> None:
    for older, number, goes in (
        (a_file(talk(1, 40)), 0, True),
        (a_file(talk(1, 40)), None, False),
        (a_file(talk(1, 40), "eve"), 0, False),
        (a_file(talk(1, 40), shared=True), 0, False),
        (a_file(talk(1, 40), readers=1), 0, False),
        # A cache that can't be cut may have to go back to where the older one can.
        (a_file(talk(1, 40), question=30, checkpoints=(30,)), 0, False),
        (a_file(talk(1, 40), question=29, checkpoints=(29,)), 0, True),
        (a_file(talk(1, 40), question=30, checkpoints=(10,)), 0, True),
        # One that it does not contain, of the slot in which its conversation went on.
        (a_file([*talk(1, 38), 7, 7], slot=0), 0, True),
        (a_file([*talk(1, 38), 7, 7], slot=1), 0, False),
        (a_file([*talk(1, 20), *talk(7, 20)], slot=0, question=29), 0, True),
        (a_file([*talk(1, 20), *talk(7, 20)], slot=0, question=30), 0, False),
    ):
        kept = KeptFiles(10**6)
        kept.add(older)
        newer = a_file(talk(1, 50), question=30, checkpoints=None if older.checkpoints is None else (10,))
        assert (kept.add(newer, number) == [older]) is goes, older
        assert kept.files == [newer] if goes else [older, newer]
        assert kept.size == sum(file.size for file in kept.files)
    kept = KeptFiles(10**6)
    kept.add(a_file(talk(1, 40), question=30, checkpoints=(30,)))
    assert len(kept.add(a_file(talk(1, 50), question=30, checkpoints=(30,)), 0)) == 1


def test_no_more_files_are_kept_than_can_be_compared_with_every_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.engine.slots.swap_plan._FILES", 3)
    kept = KeptFiles(10**6)
    files = [a_file(talk(n, 10)) for n in range(1, 5)]
    for file in files[:3]:
        assert kept.add(file) == []
    assert kept.make_room(talk(9, 10), "ada", 10) == [files[0]]
    kept.add(files[0])
    assert kept.add(files[3]) == [files[1]]
    assert kept.files == [files[2], files[0], files[3]]


def test_file_that_comes_later_is_worth_what_was_given_up_before_it() -> None:
    kept = KeptFiles(20)
    first, second, third = (a_file(talk(n, 10)) for n in (1, 2, 3))
    for file in (first, second):
        kept.add(file)
    assert (first.floor, second.floor) == (0, 0)
    assert kept.make_room(third.ids, "ada", 10) == [first]
    kept.add(third)
    assert third.floor == 1
    assert second.used < third.used
    kept.touch(second)
    assert (second.floor, second.used > third.used) == (1, True)
