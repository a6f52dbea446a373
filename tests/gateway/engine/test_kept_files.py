"""Slot files when there is no room for all: which are given up, and which are not."""

from contextlib import ExitStack
from dataclasses import replace

from gateway.engine.slots.slot import Hints, Slot
from gateway.engine.slots.slot_directory import SlotFile
from gateway.engine.slots.swap_plan import KeptFiles, Paging
from tests.gateway.engine.slot_engine import FixedRates


def talk(number: int, size: int = 50) -> list[int]:
    """A conversation that begins like no other."""
    return [1000 * number + n for n in range(size)]


def a_file(name: str, ids: list[int], owner: str = "ada", *, shared: bool = False) -> SlotFile:
    return SlotFile(name, ids, owner, len(ids), "", len(ids), shared)


def named(files: list[SlotFile] | None) -> list[str] | None:
    return None if files is None else [file.name for file in files]


def test_what_was_asked_for_longest_ago_goes_first_among_equals() -> None:
    paging = Paging(30, FixedRates())
    for n in (1, 2, 3):
        paging.kept.add(a_file(f"file {n}", talk(n, 10)))
    paging.take(0, paging.plan(Slot(0), [*talk(1, 10), 5], "ada"), "ada")
    paging.take(0, paging.plan(Slot(0), [*talk(9, 10), 5], "ada"), "ada")

    assert named(paging.kept.make_room(talk(4, 10), "ada", 20)) == ["file 2", "file 3"]


def test_what_is_in_a_slot_anyway_goes_before_all_else() -> None:
    paging = Paging(30, FixedRates())
    for n in (1, 2, 3):
        paging.kept.add(a_file(f"file {n}", talk(n, 10)))
    paging.take(0, paging.plan(Slot(0), [*talk(3, 10), 5], "ada"), "ada")

    assert named(paging.kept.make_room(talk(4, 10), "ada", 10)) == ["file 3"]


def test_what_is_about_to_be_restored_is_not_given_up() -> None:
    paging = Paging(10, FixedRates())
    held = a_file("held", talk(1, 10))
    paging.kept.add(held)
    held.readers = 1

    assert paging.kept.make_room(talk(2, 10), "ada", 10) is None
    held.readers = 0
    assert named(paging.kept.make_room(talk(2, 10), "ada", 10)) == ["held"]


def test_conversation_that_is_worth_less_than_all_others_waits_until_those_have_grown_old() -> None:
    paging = Paging(100, FixedRates())
    paging.kept.add(a_file("preamble", talk(1, 70), shared=True))
    paging.kept.add(a_file("whole", talk(2, 30)))
    little = [*talk(1, 70), 4, 4, 4]

    refused = paging.kept.make_room(little, "ada", 30)
    assert refused is None
    tries = 0
    while paging.kept.make_room(little, "ada", 30) is None:
        tries += 1
        assert tries < 100
    assert [file.name for file in paging.kept.files] == ["preamble"]


def test_file_larger_than_the_limit_drives_nothing_out() -> None:
    paging = Paging(30, FixedRates())
    paging.kept.add(a_file("one", talk(1, 10)))

    assert paging.kept.make_room(talk(2, 31), "ada", 31) is None
    assert named(paging.kept.files) == ["one"]


def test_who_has_more_than_its_share_makes_room_among_its_own() -> None:
    paging = Paging(40, FixedRates(), share=0.5)
    paging.kept.add(a_file("adas", talk(1, 10)))
    for n in (2, 3, 4):
        paging.kept.add(a_file(f"eves {n}", talk(n, 10), "eve"))

    assert named(paging.kept.make_room(talk(5, 10), "eve", 10)) == ["eves 2"]
    assert named(paging.kept.make_room(talk(6, 10), "ada", 20)) == ["adas"]


def test_what_waits_for_a_slot_is_kept_although_it_was_used_longest_ago() -> None:
    kept = KeptFiles(30)
    for n in (1, 2, 3):
        kept.add(a_file(f"file {n}", talk(n, 10)))

    with kept.awaiting([*talk(1, 10), 5], "ada"):
        assert named(kept.make_room(talk(4, 10), "ada", 10)) == ["file 2"]
    kept.add(a_file("file 4", talk(4, 10)))
    assert named(kept.make_room(talk(5, 10), "ada", 10)) == ["file 1"]


def test_what_was_saved_only_when_it_waited_already_is_kept_as_well() -> None:
    kept = KeptFiles(20)
    with kept.awaiting([*talk(1, 10), 5], "ada"):
        for n in (1, 2):
            kept.add(a_file(f"file {n}", talk(n, 10)))
        assert named(kept.make_room(talk(3, 10), "ada", 10)) == ["file 2"]


def test_what_has_just_ended_is_not_kept_where_all_others_wait() -> None:
    kept = KeptFiles(30)
    with ExitStack() as waiting:
        for n in (1, 2, 3):
            kept.add(a_file(f"file {n}", talk(n, 10)))
            waiting.enter_context(kept.awaiting([*talk(n, 10), 5], "ada"))
        assert kept.make_room(talk(4, 10), "ada", 10) is None


def test_another_conversation_that_begins_alike_does_not_keep_a_file() -> None:
    kept = KeptFiles(10)
    kept.add(a_file("one", talk(1, 10)))

    with kept.awaiting([*talk(1, 6), 5], "ada"), kept.awaiting([*talk(1, 10), 5], "eve"):
        assert named(kept.make_room(talk(2, 10), "ada", 10)) == ["one"]


def test_shared_beginning_is_kept_for_what_waits_and_begins_so() -> None:
    kept = KeptFiles(20)
    kept.add(a_file("beginning", talk(1, 10), shared=True))
    kept.add(a_file("whole", talk(2, 10)))

    with kept.awaiting([*talk(1, 10), 5], "ada"):
        assert named(kept.make_room(talk(3, 40), "ada", 10)) == ["whole"]
        assert kept.make_room(talk(3, 40), "ada", 20) is None


def test_who_has_more_than_its_share_gives_way_although_it_waits_and_others_do_not() -> None:
    kept = KeptFiles(40, share=0.5)
    with ExitStack() as waiting:
        for owner, n in (("eve", 1), ("eve", 2), ("eve", 3), ("ada", 4)):
            kept.add(a_file(f"{owner} {n}", talk(n, 10), owner))
            waiting.enter_context(kept.awaiting([*talk(n, 10), 5], owner))

        assert kept.make_room(talk(5, 10), "eve", 10) is None
        assert named(kept.make_room(talk(5, 10), "bob", 10)) == ["eve 1"]
        kept.add(a_file("bob 5", talk(5, 10), "bob"))
        # None has more than its share now.
        assert named(kept.make_room(talk(6, 10), "bob", 10)) == ["bob 5"]


def test_what_waits_is_kept_where_a_file_came_out_larger_than_expected() -> None:
    kept = KeptFiles(30)
    for n in (1, 2, 3):
        kept.add(a_file(f"file {n}", talk(n, 10)))
    with kept.awaiting([*talk(1, 10), 5], "ada"):
        kept.add(a_file("file 4", talk(4, 10)))
    assert named(kept.files) == ["file 1", "file 3", "file 4"]


def test_a_file_of_another_conversation_with_the_same_beginning_stays() -> None:
    paging = Paging(1000, FixedRates())
    other = a_file("other", [*talk(1, 40), *talk(2, 40)])
    paging.kept.add(other, 1)
    slot = Slot(0, ids=[*talk(1, 20), *talk(3, 60)], owner="ada", answered=True, answer="one", question=70)
    hints = Hints(question=60, answer="two", before="one")
    plan = paging.plan(slot, [*talk(1, 40), *talk(4, 20)], "ada", hints)
    paging.take(0, plan, "ada", hints)
    paging.kept.add(replace(a_file("newer", [*talk(1, 40), *talk(4, 20)]), question=60), 0)
    assert other in paging.kept.files


def test_files_of_a_conversation_go_when_its_next_question_is_kept() -> None:
    paging = Paging(1000, FixedRates())
    for number, question in enumerate(range(50, 100, 10)):
        hints = Hints(question=question, answer=f"{number}", before=f"{number - 1}")
        slot, prompt = Slot(0), [*talk(1, 40), *talk(2, question - 40)]
        paging.take(0, paging.plan(slot, prompt, "ada", hints), "ada", hints)
        for each in (talk(5, 5), talk(6, 5)):
            kept = a_file(f"{number}", [*prompt, *each])
            paging.kept.add(replace(kept, answer=f"{number}", question=question), 0)
        assert len(paging.kept.files) <= 2


def test_a_preamble_that_nobody_asked_for_again_is_worth_no_more_than_a_conversation() -> None:
    paging = Paging(1000, FixedRates())
    once = replace(a_file("preamble", talk(1, 40), shared=True), checkpoints=(36,))
    paging.kept.add(once)
    assert once.density == 1
    slot = Slot(0, checkpoints=())
    paging.take(0, paging.plan(slot, [*talk(1, 40), *talk(2, 40)], "ada"), "ada")
    assert once.density == 2
