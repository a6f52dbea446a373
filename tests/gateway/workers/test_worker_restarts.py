"""A worker that ends is started again, later each time that it does not last."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from gateway.errors import ConfigError, GatewayError
from gateway.proxy.upstream.supervision.lifecycle import Backoff
from gateway.workers.handover import Order
from gateway.workers.worker_restarts import Minder

pytestmark = pytest.mark.anyio


class Run:
    """A worker's start, as the test has it go."""

    pid = 7

    def __init__(self, fault: GatewayError | None = None, *, lasts: float = 0, status: int | None = -9) -> None:
        self.fault = fault
        self.lasts = lasts
        self.status = status
        self.orders: list[Order] = []
        self.drained = anyio.Event()

    async def ready(self) -> None:
        if self.fault is not None:
            raise self.fault

    def order(self, order: Order) -> None:
        self.orders.append(order)
        if order == "drain":
            self.drained.set()

    async def ended(self) -> int:
        if self.status is None:
            await self.drained.wait()
        return self.status or 0


class Pauses(Backoff):
    """Back-off that takes no time, and says when it was asked."""

    def __init__(self) -> None:
        super().__init__(0, 0)
        object.__setattr__(self, "asked", [])

    def pause(self, failures: int, roll: float) -> float:
        self.asked.append(failures)
        return 0.0


@dataclass
class Script:
    """Starts, one after the other."""

    runs: list[Run]
    backoff: Pauses = field(default_factory=Pauses)
    now: float = 0.0
    restarted: list[int] = field(default_factory=list[int])
    seen: list[tuple[bool, int | None]] = field(default_factory=list[tuple[bool, int | None]])

    def __post_init__(self) -> None:
        self.waiting = list(self.runs)
        self.minder = Minder(3, self.start, self.backoff, self.restarted.append, lambda: self.now)

    @asynccontextmanager
    async def start(self, number: int) -> AsyncGenerator[Any]:
        assert number == 3
        run = self.waiting.pop(0)
        yield run
        self.seen.append((self.minder.ready, self.minder.pid))
        self.now += run.lasts

    async def keep(self) -> None:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                await tasks.start(self.minder.keep)
                # The last one runs until it is drained.
                while self.waiting or not self.minder.ready:
                    await anyio.lowlevel.checkpoint()
                self.minder.stop()


async def test_worker_that_ends_again_and_again_is_waited_for_longer_each_time() -> None:
    script = Script([Run(), Run(), Run(ConfigError("wrong")), Run(), Run(status=None)])

    await script.keep()

    assert script.backoff.asked == [1, 2, 3, 4]
    assert script.restarted == [3, 3, 3, 3]
    assert script.minder.restarts == 4
    assert not script.minder.ready
    assert script.minder.pid is None


async def test_worker_that_was_asked_to_end_is_replaced_at_once() -> None:
    script = Script([Run(), Run(status=0), Run(status=None)])

    await script.keep()

    assert script.backoff.asked == [1]


async def test_stop_is_told_to_the_worker_that_runs_and_nothing_is_started_any_more() -> None:
    last = Run(status=None)
    script = Script([last])

    await script.keep()

    assert last.orders == ["drain"]
    assert script.minder.restarts == 0


@pytest.mark.parametrize("kind", [ConfigError, GatewayError])
async def test_first_start_that_fails_is_told_with_its_reason(kind: type[GatewayError]) -> None:
    minder = Script([Run(kind("port taken"))]).minder

    with pytest.raises(ExceptionGroup) as caught:
        async with anyio.create_task_group() as tasks:
            await tasks.start(minder.keep)

    (fault,) = caught.value.exceptions
    assert type(fault) is kind
    assert str(fault) == "worker 3: port taken"


async def test_stop_in_a_pause_ends_it() -> None:
    class Long(Backoff):
        def pause(self, failures: int, roll: float) -> float:
            minder.stop()
            return 3600.0

    script = Script([Run()])
    minder = Minder(3, script.start, Long(1, 1), script.restarted.append)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            await tasks.start(minder.keep)

    assert script.restarted == []


async def test_first_end_and_first_fault_are_logged_and_so_is_the_recovery(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    script = Script([Run(status=-9), Run(ConfigError("wrong\n")), Run(status=None)])

    await script.keep()

    said = [(each.msg["event"], each.msg.get("status"), each.msg.get("cause")) for each in caplog.records]
    assert said == [
        ("a worker ended and is started again", -9, None),
        ("a worker can't be started", None, "wrong\\n"),
        ("a worker is ready again", None, None),
    ]
    assert caplog.records[-1].msg["restarts"] == 2
    assert script.seen[0] == (False, None)


async def test_worker_that_lasted_begins_anew_to_fail() -> None:
    script = Script([Run(), Run(lasts=29.9), Run(lasts=30), Run(), Run(status=None)])

    await script.keep()

    assert script.backoff.asked == [1, 2, 1]


async def test_orders_go_to_the_worker_that_runs_and_to_nobody_where_none_does() -> None:
    run = Run(status=None)
    script = Script([run])
    script.minder.order("reload")
    seen: list[tuple[bool, int | None]] = []

    async with anyio.create_task_group() as tasks:
        await tasks.start(script.minder.keep)
        script.minder.order("reload")
        seen.append((script.minder.ready, script.minder.pid))
        script.minder.stop()

    assert run.orders == ["reload", "drain"]
    assert seen == [(True, 7)]
