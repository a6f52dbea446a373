"""Whose task is whose: what one session refuses, lists and remembers, whatever was checked before it."""

from contextlib import nullcontext
from typing import Any

import pytest

from gateway.errors import RpcError
from gateway.protocol.eras import CAPABILITIES_KEY
from gateway.proxy.caller import Principal
from gateway.proxy.upstream.session.task_owners import EXTENSION, TaskOwners

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
