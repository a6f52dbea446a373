"""The judge of `make replicas-check` and its switch: what may be lost, and what reaches whom."""

import pytest

from tests.cases import each_of
from tests.replicas.ledger import ANSWERED, CANCELLED, SESSION_GONE, UNANSWERED, Call, Ledger, Loss, Outage, Store
from tests.replicas.switch import Wires

KILLED = Loss("gw0", "kill", 5.0, 5.1)
DRAINED = Loss("gw0", "drain", 5.0, 9.0)
FROM, TO = b"\x02\0\0\0\0\x0b", b"\x02\0\0\0\0\x0c"


def call(outcome: str, *, owner: str | None = "gw0", began: float = 4.0, ended: float = 6.0, **more) -> Call:
    return Call(1, "2025", "ask", owner, began=began, since=began, ended=ended, outcome=outcome, **more)


def faults(one: Call, losses: list[Loss], begun: int, finished: int) -> list[str]:
    ledger = Ledger()
    ledger.calls.append(one)
    return ledger.faults(losses, {1: (begun, finished)} if begun else {})


def test_answer_to_what_was_done_once_is_no_fault() -> None:
    assert faults(call(ANSWERED), [], 1, 1) == []


@pytest.mark.parametrize(("begun", "finished", "why"), [(2, 2, "done 2 times"), (0, 0, "not done"), (1, 0, "not done")])
def test_answer_to_what_was_done_twice_or_not_at_all_is_one(begun: int, finished: int, why: str) -> None:
    (fault,) = faults(call(ANSWERED), [KILLED], begun, finished)
    assert why in fault


def test_wrong_answer_is_one_whatever_happened() -> None:
    (fault,) = faults(call(ANSWERED, wrong="'x'"), [KILLED], 1, 1)
    assert "wrong" in fault


@pytest.mark.parametrize(
    ("losses", "count"),
    [
        ([KILLED], 0),
        ([DRAINED], 1),
        ([], 1),
        ([Loss("gw1", "kill", 5.0, 5.1)], 1),
        ([Loss("gw0", "kill", 7.0, 7.1)], 1),
        ([Loss("gw0", "kill", 2.0, 2.1)], 1),
    ],
)
def test_call_that_had_run_is_lost_with_a_replica_that_was_killed_meanwhile_alone(
    losses: list[Loss], count: int
) -> None:
    assert len(faults(call(SESSION_GONE), losses, 1, 0)) == count


@pytest.mark.parametrize(("losses", "count"), [([KILLED], 0), ([DRAINED], 0), ([], 1)])
def test_call_that_did_not_run_is_refused_with_a_replica_that_ended_alone(losses: list[Loss], count: int) -> None:
    assert len(faults(call(SESSION_GONE), losses, 0, 0)) == count


def test_connection_that_broke_off_names_no_replica() -> None:
    assert faults(call(UNANSWERED, owner="gw1"), [KILLED], 1, 1) == []


def test_cancelled_call_is_not_done_to_its_end() -> None:
    assert faults(call(CANCELLED, stopped=True), [], 1, 0) == []
    assert len(faults(call(CANCELLED, stopped=True), [], 1, 1)) == 1
    assert len(faults(call(ANSWERED, stopped=True), [], 1, 1)) == 1


def test_frames_reach_whom_they_are_for_unless_the_two_are_cut_off() -> None:
    wires = Wires({11: "gw0", 12: "gw1", 13: "gw2"})
    assert wires.targets(11, TO) == [12]
    assert wires.targets(11, b"\xff" * 6) == [12, 13]
    wires.order({"delay": 0, "loss": 0, "cuts": [["gw1", "gw0"]]})
    assert (wires.targets(11, TO), wires.targets(12, FROM)) == ([], [])
    assert wires.targets(11, b"\xff" * 6) == [13]
    wires.order({"delay": 0, "loss": 1.0, "cuts": []})
    assert wires.targets(11, TO) == []


OUTAGE = Outage("kept", 5.5, 6.0)


def unkept(loss: Loss | None, *outages: Outage, done: float = 2.0, **more) -> list[str]:
    """Faults of a call of gw0 that was finished, and not given to its client, who came back at 10 s."""
    one = Call(1, "2025", "late", "gw0", began=1.0, since=0.0, ended=10.1, outcome=SESSION_GONE, back=10.0, **more)
    ledger = Ledger()
    ledger.calls.append(one)
    return ledger.faults([] if loss is None else [loss], {1: (1, 1)}, Store({1: done}, outages))


@pytest.mark.parametrize("loss", [KILLED, DRAINED])
def test_answer_that_was_in_the_store_before_its_replica_was_gone_must_be_given(loss: Loss) -> None:
    (fault,) = unkept(loss)
    assert "was in the store" in fault


def test_answer_that_is_not_given_while_nothing_has_happened_is_a_fault_with_a_store_too() -> None:
    (fault,) = unkept(None)
    assert "nothing had happened" in fault


@each_of(
    ("outages", "done", "count"),
    [
        ([], 4.5, 0),  # Its replica was gone before it can be said that it was written.
        ([Outage("kept", 1.5, 3.0)], 2.0, 0),  # The store was away when it was to be written,
        ([Outage("said", 3.2, 3.3, "gw0")], 2.0, 0),  # or the replica that had it said so,
        ([Outage("said", 3.2, 3.3, "gw2")], 2.0, 1),  # not one that had nothing to do with it,
        ([Outage("kept", 9.8, 12.0)], 2.0, 0),  # or when it was asked for,
        ([Outage("said", 9.0, 9.8, "gw1")], 2.0, 0),
        ([Outage("kept", 6.0, 7.0)], 2.0, 1),  # and not in between,
        ([Outage("frozen", 6.0, 7.0)], 2.0, 1),
        ([Outage("forgot", 6.0, 7.0)], 2.0, 0),  # unless it has forgotten it,
        ([Outage("forgot", 0.1, 1.0)], 2.0, 1),  # and not what came later.
    ],
)
def test_store_excuses_what_it_could_not_have_alone(outages: list[Outage], done: float, count: int) -> None:
    assert len(unkept(KILLED, *outages, done=done, asked={"gw1"})) == count


def test_call_that_was_done_twice_is_a_fault_whatever_the_store_had() -> None:
    ledger = Ledger()
    ledger.calls.append(call(SESSION_GONE, back=5.5))
    (fault,) = ledger.faults([KILLED], {1: (2, 2)}, Store({1: 4.5}, [OUTAGE]))
    assert "2 times" in fault


def test_answers_of_a_replica_that_was_gone_are_counted_by_what_became_of_them() -> None:
    ledger = Ledger()
    ledger.calls += [
        Call(1, "2025", "late", "gw0", began=4.0, ended=6.0, outcome=ANSWERED, back=5.5),
        Call(2, "2025", "late", "gw0", began=4.0, ended=6.0, outcome=ANSWERED, back=4.5),
        Call(3, "2025", "late", "gw0", began=4.0, ended=6.0, outcome=SESSION_GONE, back=5.5),
        Call(4, "2025", "late", "gw0", began=1.0, ended=6.0, outcome=SESSION_GONE, back=5.5),
        Call(5, "2025", "late", "gw0", began=1.0, ended=6.0, outcome=SESSION_GONE, back=5.5),
    ]
    counts = {**dict.fromkeys([1, 2, 3, 4], (1, 1)), 5: (1, 0)}
    store = Store({1: 4.5, 2: 4.5, 3: 4.5, 4: 2.0}, [])
    assert ledger.left([KILLED], counts, store) == {
        "given": 1,
        "its replica was gone before it was written": 1,
        "not given": 1,
    }
