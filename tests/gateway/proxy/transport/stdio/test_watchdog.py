"""The shell that ends what a killed gateway leaves behind."""

import gc
import subprocess
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from gateway.proxy.transport.stdio import server_process as module
from gateway.proxy.transport.stdio.server_process import Watchdog

pytestmark = pytest.mark.anyio

STUBBORN = ["/bin/sh", "-c", "trap '' TERM HUP INT; echo; while :; do read -r line; done"]


@pytest.fixture(autouse=True)
def _short_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell waits for less long, before it ends what it holds, than it would."""
    monkeypatch.setattr(module, "_SCRIPT", module._SCRIPT.replace(f"sleep {module._MOMENT}", "sleep 0.05"))


@pytest.fixture
def groups() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Three processes that heed no signal but KILL, each in a group of its own."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    running = [subprocess.Popen(STUBBORN, start_new_session=True, **pipes) for _ in range(3)]
    for process in running:
        process.stdout.readline()
    yield running
    for process in running:
        process.kill()
        process.communicate()


async def test_what_is_held_at_the_end_is_ended_and_what_was_released_is_not(groups) -> None:
    first, released, last = groups
    watchdog = Watchdog()
    for process in groups:
        await watchdog.hold(process.pid)
    watchdog.release(released.pid)
    await watchdog.close()

    assert [process.wait(60) for process in (first, last)] == [-9, -9]
    assert released.poll() is None


async def test_watchdog_that_holds_nothing_leaves_at_once_and_a_new_one_may_come(groups) -> None:
    watchdog = Watchdog()
    await watchdog.close()
    await watchdog.hold(groups[0].pid)
    watchdog.release(groups[0].pid)
    await watchdog.close()

    assert groups[0].poll() is None


async def test_machine_without_a_shell_is_served_all_the_same_and_holds_no_descriptor(
    groups, monkeypatch, descriptors, caplog
) -> None:
    monkeypatch.setattr(module, "_SHELL", "/no/such/shell")
    before = descriptors()
    watchdog = Watchdog()
    await watchdog.hold(groups[0].pid)
    await watchdog.hold(groups[1].pid)
    watchdog.release(groups[0].pid)
    await watchdog.close()

    assert descriptors() <= before
    assert groups[0].poll() is None
    assert caplog.text.count("the watchdog did not start") == 1
    assert "/no/such/shell: No such file or directory" in caplog.text


async def test_shell_that_does_not_read_holds_nobody_up(monkeypatch, tmp_path) -> None:
    go_on = tmp_path / "go-on"
    monkeypatch.setattr(module, "_SCRIPT", f"while [ ! -e {go_on} ]; do sleep 0.01; done")
    watchdog = Watchdog()
    for group in range(10_000):
        await watchdog.hold(group)
    go_on.touch()
    await watchdog.close()


async def test_shell_is_of_a_session_of_its_own_which_no_signal_to_the_gateways_reaches(monkeypatch, tmp_path) -> None:
    told = tmp_path / "told"
    monkeypatch.setattr(module, "_SCRIPT", f"read -r _ _ _ _ _ session _ </proc/$$/stat; echo $$ $session >{told}")
    watchdog = Watchdog()
    await watchdog.hold(1)
    await watchdog.close()
    pid, session = told.read_text().split()

    assert pid == session


@pytest.mark.parametrize("turns", range(4))
async def test_start_of_the_shell_that_is_given_up_leaves_no_pipe(groups, descriptors, turns) -> None:
    first = Watchdog()
    await first.hold(groups[0].pid)
    await first.close()
    before = descriptors()

    watchdog = Watchdog()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watchdog.hold, groups[1].pid)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    await watchdog.close()

    gc.collect()
    assert descriptors() <= before
