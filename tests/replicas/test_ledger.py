"""The judge of `make replicas-check` and its switch: what may be lost, and what reaches whom."""

import pytest

from tests.replicas.ledger import ANSWERED, CANCELLED, SESSION_GONE, UNANSWERED, Call, Ledger, Loss
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
