"""Whose task is whose: what one session refuses, lists and remembers, whatever was checked before it."""

from contextlib import nullcontext
from typing import Any

import pytest

from gateway.errors import RpcError
from gateway.protocol.eras import CAPABILITIES_KEY
from gateway.proxy.caller import Principal
from gateway.proxy.upstream.session import task_owners
from gateway.proxy.upstream.session.task_owners import EXTENSION, RELATED, TaskOwners, without_extension

ANN, BOB = Principal("ann"), Principal("bob")
HANDSHAKE = ({"task": {}}, {"task": {"taskId": "t1"}})
MODERN = (
    {"_meta": {CAPABILITIES_KEY: {"extensions": {EXTENSION: {}}}}},
    {"resultType": "task", "taskId": "t1"},
)


@pytest.fixture(params=[HANDSHAKE, MODERN], ids=["handshake", "modern"])
def owners(request: pytest.FixtureRequest) -> TaskOwners:
    """Ann has made the task `t1`."""
    sent, result = request.param
    made = TaskOwners()
    assert made.note("tools/call", sent, result, ANN) is result
    return made


@pytest.mark.parametrize(
    ("principal", "method", "task_id", "refused"),
    [
        (ANN, "tasks/get", "t1", False),
        (BOB, "tasks/get", "t1", True),
        (BOB, "tasks/cancel", "t1", True),
        (BOB, "tasks/result", "t1", True),
        (ANN, "tasks/get", "t2", True),
        (ANN, "tasks/get", ["t1"], True),
        (BOB, "tasks/list", None, False),
        (BOB, "tools/call", "t1", False),
    ],
)
def test_only_its_maker_may_ask_about_a_task(
    owners: TaskOwners, principal: Principal, method: str, task_id: object, *, refused: bool
) -> None:
    with pytest.raises(RpcError, match="unknown task") if refused else nullcontext():
        owners.check(method, {"taskId": task_id}, principal)


@pytest.mark.parametrize(("principal", "shown"), [(ANN, ["t1"]), (BOB, [])])
def test_list_holds_the_tasks_of_who_asks_and_keeps_its_other_fields(
    owners: TaskOwners, principal: Principal, shown: list[str]
) -> None:
    listed: dict[str, Any] = {"tasks": [{"taskId": "t1"}, {"taskId": "t2"}, "t1"], "nextCursor": "x"}

    assert owners.note("tasks/list", {}, listed, principal) == {
        "tasks": [{"taskId": each} for each in shown],
        "nextCursor": "x",
    }


def test_task_that_nobody_asked_for_is_nobodys() -> None:
    owners = TaskOwners()
    for _, result in (HANDSHAKE, MODERN):
        owners.note("tools/call", {}, result, ANN)

    assert not owners.owns("t1", ANN)


def begin(owners: TaskOwners, task_id: object, principal: Principal) -> None:
    owners.note("tools/call", {"task": {}}, {"task": {"taskId": task_id}}, principal)


def test_id_of_another_principal_s_task_is_given_to_nobody_else_and_one_s_own_may_come_again(
    owners: TaskOwners,
) -> None:
    with pytest.raises(RpcError, match="an id that another caller's task already has"):
        begin(owners, "t1", BOB)
    begin(owners, "t1", ANN)

    assert owners.owns("t1", ANN)
    assert not owners.owns("t1", BOB)


def test_of_too_many_tasks_the_principal_with_the_most_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_owners, "_MOST", 4)
    owners = TaskOwners()
    for task_id, principal in (("b1", BOB), ("a1", ANN), ("a2", ANN), ("a1", ANN), ("a3", ANN)):
        begin(owners, task_id, principal)
    before = [owners.owns(each, ANN) for each in ("a1", "a2", "a3")]
    begin(owners, "b2", BOB)

    assert before == [True, True, True]
    # `a1` began anew.
    assert [owners.owns(each, ANN) for each in ("a1", "a2", "a3")] == [True, False, True]
    assert [owners.owns(each, BOB) for each in ("b1", "b2")] == [True, True]


@pytest.mark.parametrize(("length", "kept"), [(1024, True), (1025, False)])
def test_longest_id_that_is_remembered(length: int, *, kept: bool) -> None:
    owners = TaskOwners()
    begin(owners, "x" * length, ANN)

    assert owners.owns("x" * length, ANN) is kept


@pytest.mark.parametrize("about", [{"taskId": "t1"}, {"taskId": "t2"}, "t1", None])
def test_notification_about_a_task_may_reach_its_maker_only(owners: TaskOwners, about: Any) -> None:
    is_anns = about == {"taskId": "t1"}
    status = about if isinstance(about, dict) else {}

    assert [owners.may_hear("notifications/tasks/status", status, each) for each in (ANN, BOB)] == [is_anns, False]
    assert [owners.may_hear("x", {"_meta": {RELATED: about}}, each) for each in (ANN, BOB)] == [is_anns, False]
    assert owners.may_hear("x", {"_meta": {}}, BOB)


def test_unknown_task_is_named_on_one_line_in_the_same_words_whoever_has_it(owners: TaskOwners) -> None:
    said: list[str] = []
    for task_id in ("t1", "t2", "x\n" * 100, 7):
        with pytest.raises(RpcError) as refused:
            owners.check("tasks/get", {"taskId": task_id}, BOB)
        said.append(refused.value.message)

    assert said[0].replace("t1", "t2") == said[1]
    assert "\n" not in said[2]
    assert len(said[2]) < 300
    assert said[3] == "unknown task: params.taskId has to be the id of a task, as a string"


def test_extension_is_left_out_and_others_stay() -> None:
    tasks, other = {EXTENSION: {}}, {"other": {}}

    assert without_extension({"roots": {}, "extensions": {**tasks, **other}}) == {"roots": {}, "extensions": other}
    assert without_extension({"roots": {}, "extensions": tasks}) == {"roots": {}}
    for untouched in ({"roots": {}}, {"extensions": other}, {"extensions": True}):
        assert without_extension(untouched) == untouched
