"""A server's process that is not there: when its conversation ends, and what is done until nothing of it is left."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from typing import Any, cast

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.config.programs import DEPTH_VARIABLE
from gateway.protocol.lines import PORTION
from gateway.proxy.transport.stdio import server_process as module
from gateway.proxy.transport.stdio.server_process import Child, child_environment, run_child
from gateway.proxy.transport.transport_interface import ServerLog
from tests.gateway.proxy.transport.kept_log import KeptLog, settled

pytestmark = pytest.mark.anyio
PID = 4242


class Pipe:
    """One of its pipes."""

    def __init__(self, closed: Callable[[str], None]) -> None:
        self._closed = closed
        self.unread = 0
        self.written = b""
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def close(self) -> None:
        self._closed("input closed")

    def abort(self) -> None:
        self._closed("input aborted")

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def is_closing(self) -> bool:
        return False


class Process:
    """The process, and one that it leaves behind in its group."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.heeds: set[Signals | str] = set()
        """What ends it."""
        self.left_heeds: set[Signals] | None = None
        """What ends the one that it leaves behind; None: there is none."""
        self.left_takes = 0
        """After how many looks that one is gone."""
        self.is_released = True
        """Whether its pipes close in the end."""
        self.pipes: dict[int, Pipe | None] = {fd: Pipe(self._happened) for fd in (0, 1, 2)}
        self.child: Child
        self._is_running = True

    def get_pid(self) -> int:
        return PID

    def get_returncode(self) -> int | None:
        return None if self._is_running else 0

    def get_pipe_transport(self, fd: int) -> Pipe | None:
        return self.pipes[fd]

    def close(self) -> None:
        self.did.append("released")
        if self.is_released:
            self.child.connection_lost(None)

    def killpg(self, group: int, number: int) -> None:
        assert group == PID
        if not self._is_running and self.left_heeds is None:
            raise ProcessLookupError
        if number:
            self._happened(Signals(number))
        elif self.left_takes:
            self.left_takes -= 1
            if not self.left_takes:
                self.left_heeds = None
                raise ProcessLookupError

    def exit(self) -> None:
        self._is_running = False
        self.child.process_exited()

    def _happened(self, what: Signals | str) -> None:
        self.did.append(what.name if isinstance(what, Signals) else what)
        if self._is_running and what in self.heeds:
            self.exit()
        elif self.left_heeds is not None and what in self.left_heeds:
            self.left_heeds = None


class Timers:
    """The time of the loop, which a test has pass."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, ...]] = []

    def call_later(self, seconds: float, call: Any, *args: Any) -> None:
        self.waiting.append((call, *args))

    async def fire(self) -> None:
        call, *args = self.waiting.pop()
        call(*args)
        await settled()


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr(os, "killpg", process.killpg)
    monkeypatch.setattr(module, "_EXIT_GRACE", 0.02)
    return process


@pytest.fixture
def heard() -> list[bytes | str]:
    """What it said, and why its conversation ended."""
    return []


@pytest.fixture
async def child(process: Process, log: KeptLog, heard: list[bytes | str]) -> Child:
    log_of_gateway = cast("Any", log)
    child = Child(heard.append, heard.append, log_of_gateway, ServerLog(log_of_gateway))
    child.connection_made(cast("Any", process))
    process.child = child
    return child


@pytest.fixture
async def timers(monkeypatch: pytest.MonkeyPatch) -> Timers:
    timers = Timers()
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", timers.call_later)
    return timers


@pytest.mark.parametrize(
    ("heeds", "left_heeds", "signals"),
    [
        ({"input closed"}, None, []),
        ({SIGTERM}, None, ["SIGTERM"]),
        ({SIGKILL}, None, ["SIGTERM", "SIGKILL"]),
        ({"input closed"}, {SIGTERM}, ["SIGTERM"]),
        ({"input closed"}, {SIGKILL}, ["SIGTERM", "SIGKILL"]),
        ({SIGTERM}, {SIGKILL}, ["SIGTERM", "SIGTERM", "SIGKILL"]),
    ],
)
async def test_process_and_what_it_left_behind_are_ended_as_gently_as_they_let_us(
    child, process, log, heeds, left_heeds, signals
):
    process.heeds, process.left_heeds = heeds, left_heeds
    await child.end()

    assert process.did == ["input closed", *signals, "released"]
    assert (process.get_returncode(), process.left_heeds) == (0, None)
    assert {entry["event"] for entry in log.entries} <= {"upstream process did not exit"}


async def test_what_it_left_behind_gets_a_moment_to_leave(child, process, clock):
    process.heeds, process.left_heeds, process.left_takes = {"input closed"}, set(), 1
    ending = asyncio.create_task(child.end())
    await settled()
    for _ in range(2):
        await clock.passes(0.01)
    await ending

    assert process.did == ["input closed", "SIGTERM", "released"]


async def test_process_that_even_outlives_a_kill_is_reported_and_left_alone(child, process, log):
    await child.end()

    assert process.did == ["input closed", "SIGTERM", "SIGKILL", "released"]
    assert log.entries[-1] == {"event": "upstream process is still running after SIGKILL", "pid": PID}


async def test_input_that_it_has_not_read_is_thrown_away_for_it_to_see_the_end(child, process):
    process.heeds = {"input aborted"}
    process.pipes[0].unread = 1
    await child.end()

    assert process.did == ["input aborted", "released"]


async def test_last_words_on_standard_error_are_logged_even_if_its_pipes_never_close(child, process, log):
    process.heeds, process.is_released = {"input closed"}, False
    child.pipe_data_received(2, b"no newline")
    await child.end()

    assert [entry["line"] for entry in log.entries] == ["no newline"]


async def test_room_is_what_the_process_leaves_until_its_end_and_then_everybody_goes_on(child):
    seen = [(child.full, child.room.is_set())]
    for step in (child.pause_writing, child.resume_writing, child.pause_writing):
        step()
        seen.append((child.full, child.room.is_set()))
    child.end_conversation("enough")
    seen.append((child.full, child.room.is_set()))

    assert seen == [(False, True), (True, False), (False, True), (True, False), (False, True)]


async def test_conversation_ends_once_with_what_was_handed_over_before(child, process, heard):
    child.write(b"first\n")
    child.end_conversation("enough")
    child.write(b"second\n")
    child.end_conversation("again")
    await settled()

    assert heard == ["enough"]
    assert process.pipes[0].written == b"first\n"


async def test_exit_after_the_end_of_the_conversation_is_not_waited_for(child, process, timers):
    child.end_conversation("enough")
    process.exit()

    assert timers.waiting == []


async def test_standard_error_that_closes_ends_nothing(child, timers, heard):
    child.pipe_connection_lost(2, None)

    assert (timers.waiting, heard) == ([], [])


async def test_exit_is_the_end_where_the_output_was_read_to_its_end_before(child, process, timers, heard):
    process.pipes[1] = None
    process.exit()
    await settled()

    assert timers.waiting == []
    assert heard == ["its process ended (exit code 0)"]


async def test_output_that_still_arrives_after_the_exit_puts_the_end_off(child, process, timers, heard):
    child.pipe_data_received(1, b"before")
    process.exit()
    for said in (b"one", b"two"):
        child.pipe_data_received(1, said)
        await timers.fire()
    before = [*heard]
    await timers.fire()

    assert before == [b"before", b"one", b"two"]
    assert heard == [*before, "its process ended (exit code 0)"]
    assert timers.waiting == []


@pytest.mark.parametrize(("arrives", "is_put_off"), [((1 << 20) - 1, True), (1 << 20, False)])
async def test_more_output_than_a_pipe_holds_is_that_of_another_process_and_is_not_waited_for(
    child, process, timers, heard, arrives, is_put_off
):
    process.exit()
    child.pipe_data_received(1, b"x")
    await timers.fire()
    child.pipe_data_received(1, b"x" * (arrives - 1))
    await timers.fire()

    assert bool(timers.waiting) == is_put_off
    assert isinstance(heard[-1], str) != is_put_off


async def test_output_of_a_process_that_lives_on_without_its_input_puts_nothing_off(child, timers, heard):
    child.pipe_connection_lost(0, None)
    child.pipe_data_received(1, b"more")
    await timers.fire()

    assert heard == [b"more", "its process closed its input or output"]


async def test_output_that_waits_for_its_turn_puts_the_end_off_until_the_rest_was_read(child, process, timers, heard):
    lines = b"a\n" * 50 * PORTION
    child.pipe_data_received(1, lines)
    process.exit()
    await timers.fire()
    for _ in range(5):
        await settled()
    assert process.pipes[1].is_read
    child.pipe_data_received(1, b"rest")
    await timers.fire()
    await timers.fire()

    assert b"".join(heard[:-1]) == lines + b"rest"
    assert heard[-1] == "its process ended (exit code 0)"


async def test_end_that_is_known_meanwhile_is_not_put_off(child, process, timers, heard):
    process.exit()
    child.pipe_data_received(1, b"more")
    child.end_conversation("enough")
    await timers.fire()

    assert (timers.waiting, heard) == ([], [b"more", "enough"])


def test_environment_is_what_is_configured_what_may_be_inherited_and_how_deep_gateways_are_nested():
    config = UpstreamConfig("it", command="c", env={"A": "1"}, inherit_env=("KEPT",))

    assert child_environment(config, {"KEPT": "k", "SECRET": "s", DEPTH_VARIABLE: "2"}) == {
        "A": "1",
        "KEPT": "k",
        DEPTH_VARIABLE: "3",
    }


class Guard:
    """Remembers what a watchdog is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    async def hold(self, group: int) -> None:
        self.told.append(("hold", group))

    def release(self, group: int) -> None:
        self.told.append(("release", group))


def where_it_runs(pid: int) -> Path:
    return Path(f"/proc/{pid}/cwd").readlink()


async def test_process_has_a_group_of_its_own_which_is_guarded_until_it_has_ended(log, heard, tmp_path):
    guard = Guard()
    child = Child(heard.append, heard.append, cast("Any", log), ServerLog(cast("Any", log)))
    async with run_child(UpstreamConfig("it", command="cat", cwd=tmp_path), child, cast("Any", guard)):
        pid = child.pid
        assert os.getpgid(pid) == pid
        assert where_it_runs(pid) == tmp_path
        assert guard.told == [("hold", pid)]

    assert guard.told == [("hold", pid), ("release", pid)]
    assert child.exited.is_set()
    assert heard == ["the gateway ended it"]
