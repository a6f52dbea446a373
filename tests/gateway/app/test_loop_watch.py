"""What holds the event loop is logged with its place, request and principal, and counted; waiting is not."""

import sys
import threading
from typing import Any

import anyio
import pytest

from gateway.app.loop_watch import Holder, LoopWatch, holder_of
from gateway.proxy.caller import Principal
from gateway.serve.http.request_parts import PRINCIPAL

pytestmark = pytest.mark.anyio

SCOPE = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "state": {PRINCIPAL: Principal("alice")}}


def code_in(module: str, source: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": module}
    exec(source, names)
    return names


HELD = code_in("gateway.serve.held", "def handle(scope, hold):\n    hold()\ndef alone(hold):\n    hold()\n")


def found_in(run: Any) -> Holder | None:
    """What is found while `run` is at the call of its argument."""
    holders: list[Holder | None] = []

    def look() -> None:
        holders.append(holder_of(sys._getframe(1)))

    run(look)
    return holders[0]


def test_holder_is_the_innermost_function_of_ours_with_its_request() -> None:
    handled = found_in(lambda look: HELD["handle"](SCOPE, look))

    assert handled == Holder("gateway.serve.held.handle", "POST /v1/chat/completions", "alice")
    assert found_in(HELD["alone"]) == Holder("gateway.serve.held.alone")


def test_what_called_it_and_what_it_called_are_not_the_holder() -> None:
    outer = code_in("gateway.app.outer", "def run(inner, hold):\n    inner(hold)\n")["run"]
    library = code_in("json", "def dump(scope, hold):\n    hold()\n")["dump"]
    runner = code_in("asyncio.runners", "def run(hold):\n    hold()\n")["run"]
    none = code_in("asyncio.runners", "def run(inner, hold):\n    inner(hold)\n")["run"]

    assert found_in(lambda look: outer(HELD["alone"], look)) == Holder("gateway.serve.held.alone")
    # A request is named though none of our functions runs.
    assert found_in(lambda look: library(SCOPE, look)) == Holder("json", "POST /v1/chat/completions", "alice")
    assert found_in(lambda look: outer(runner, look)) is None
    assert found_in(lambda look: none(lambda it: library({"type": "lifespan"}, it), look)) is None
    assert found_in(lambda look: none(lambda it: library({"path": "/x"}, it), look)) == Holder(
        "json", "/x", "anonymous"
    )
    assert holder_of(None) is None


async def test_watcher_keeps_no_process_and_ends_with_the_watch() -> None:
    before = threading.enumerate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(LoopWatch(lambda: None).run)
        await anyio.wait_all_tasks_blocked()
        (watcher,) = [each for each in threading.enumerate() if each not in before]
        tasks.cancel_scope.cancel()
    await anyio.to_thread.run_sync(watcher.join, 20)

    assert watcher.daemon
    assert not watcher.is_alive()


async def test_loop_that_is_held_is_counted_and_one_that_waits_is_not(caplog: pytest.LogCaptureFixture) -> None:
    counted: list[int] = []
    noticed, gone = threading.Event(), anyio.Event()
    watch = LoopWatch(lambda: (counted.append(1), gone.set()), longest=0.05)

    async def run() -> None:
        HELD["handle"](SCOPE, lambda: noticed.wait(1.5))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        await anyio.sleep(0.3)
        assert counted == []
        await run()
        await gone.wait()
        # And once more, for each time.
        noticed.clear()
        gone = anyio.Event()
        await run()
        await gone.wait()
        tasks.cancel_scope.cancel()

    assert counted == [1, 1]
    held = [each.msg for each in caplog.records if "event loop was held" in each.getMessage()]
    assert all(0.05 < each["seconds"] == round(each["seconds"], 2) < 60 for each in held)
    line = next(each.getMessage() for each in caplog.records if "event loop was held" in each.getMessage())
    assert "gateway.serve.held.handle" in line
    assert "POST /v1/chat/completions" in line
    assert "alice" in line
