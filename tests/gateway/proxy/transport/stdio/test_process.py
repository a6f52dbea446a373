"""What is handed to a real process: how it is written, and that none of it is lost."""

import asyncio
import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.protocol.lines import PORTION
from gateway.proxy.transport.stdio.server_process import Child, GatheredBytes, run_child
from gateway.proxy.transport.transport_interface import ServerLog
from tests.cases import each_of

pytestmark = pytest.mark.anyio
LOG = get_logger("test")
COUNTS_READS = """
import os
while data := os.read(0, 65536):
    os.write(1, b"%d\\n" % len(data))
"""
KEEPS = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read())"


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


class Ear:
    """Hears a process until it has said so many lines."""

    def __init__(self, lines: int) -> None:
        self.said = b""
        self.enough = anyio.Event()
        self._lines = lines

    def hear(self, data: bytes) -> None:
        self.said += data
        if self.said.count(b"\n") >= self._lines:
            self.enough.set()


def child_of(ear: Ear) -> Child:
    return Child(ear.hear, lambda cause: None, LOG, ServerLog(LOG))


def running(program: str, *args: str) -> UpstreamConfig:
    return UpstreamConfig("it", command=sys.executable, args=("-c", program, *args))


async def test_program_that_does_not_exist_is_still_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        async with run_child(UpstreamConfig("it", command="/no-such-program"), child_of(Ear(1))):
            pass


async def test_program_of_ours_is_found_beside_us_whatever_path_the_server_gets() -> None:
    ear = Ear(1)
    child = child_of(ear)
    config = UpstreamConfig("it", command="codec-plain-time", env={"PATH": "/no/such/folder"})

    async with run_child(config, child):
        child.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        await ear.enough.wait()


async def test_program_of_others_is_looked_for_on_the_path_alone() -> None:
    with pytest.raises(FileNotFoundError):
        async with run_child(UpstreamConfig("it", command="pip", env={"PATH": "/no/such/folder"}), child_of(Ear(1))):
            pass


class PipesOfOneThatIsGone:
    """Of a process that has exited: its output is not read to its end."""

    def get_pid(self) -> int:
        return 1

    def get_returncode(self) -> int:
        return 0

    def get_pipe_transport(self, fd: int) -> Any:
        return self

    def is_closing(self) -> bool:
        return False


async def test_input_that_is_lost_with_the_process_does_not_end_what_is_still_in_its_output() -> None:
    ear, ended = Ear(1), list[str]()
    child = Child(ear.hear, ended.append, LOG, ServerLog(LOG))
    child.connection_made(cast("Any", PipesOfOneThatIsGone()))

    child.process_exited()
    child.pipe_connection_lost(0, None)
    assert ended == []

    child.pipe_data_received(1, b"its last words\n")
    assert ear.said == b"its last words\n"


@each_of(
    ("code", "cause"),
    [
        (None, "its process closed its input or output"),
        (0, "its process ended (exit code 0)"),
        (3, "its process ended (exit code 3)"),
        (-9, "its process ended (signal 9)"),
    ],
)
async def test_end_says_how_the_process_left(code: int | None, cause: str) -> None:
    class Left(PipesOfOneThatIsGone):
        def get_returncode(self) -> int | None:
            return code

        def is_closing(self) -> bool:
            return True

    ended: list[str] = []
    child = Child(lambda data: None, ended.append, LOG, ServerLog(LOG))
    child.connection_made(cast("Any", Left()))
    child.process_exited()
    child.pipe_connection_lost(1, None)
    for _ in range(5):
        await anyio.lowlevel.checkpoint()

    assert ended == [cause]


@pytest.mark.parametrize("pipe", [0, 1])
async def test_process_that_lives_on_without_its_input_or_output_ends_the_conversation(
    monkeypatch: pytest.MonkeyPatch, pipe: int
) -> None:
    class Living(PipesOfOneThatIsGone):
        def get_returncode(self) -> int | None:
            return None

    monkeypatch.setattr("gateway.proxy.transport.stdio.server_process._LAST_WORDS", 0.0)
    ended, over = list[str](), anyio.Event()

    def end(cause: str) -> None:
        ended.append(cause)
        over.set()

    child = Child(lambda data: None, end, LOG, ServerLog(LOG))
    child.connection_made(cast("Any", Living()))
    child.pipe_connection_lost(2, None)
    child.pipe_connection_lost(pipe, None)
    with anyio.fail_after(20):
        await over.wait()

    assert ended == ["its process closed its input or output"]


async def test_what_is_gathered_in_one_turn_is_written_at_once_where_it_grows_large() -> None:
    sent: list[int] = []
    gathered = GatheredBytes(lambda data: sent.append(len(data)))
    gathered.add(b"x" * 64 * 1024)
    before = [*sent]
    gathered.add(b"y")
    at_once = [*sent]
    gathered.add(b"z" * 64 * 1024)
    after = [*sent]
    await anyio.lowlevel.checkpoint()

    assert (before, at_once, after, sent) == ([], [64 * 1024 + 1], at_once, [64 * 1024 + 1, 64 * 1024])


async def test_output_read_in_the_turn_in_which_the_exit_is_known_is_passed_on_before_the_end() -> None:
    class Closing(PipesOfOneThatIsGone):
        def is_closing(self) -> bool:
            return True

    said: list[bytes] = []
    ended: list[list[bytes]] = []
    child = Child(said.append, lambda cause: ended.append([*said]), LOG, ServerLog(LOG))
    child.connection_made(cast("Any", Closing()))

    # Both are known in one turn of a loop that was held up, the exit first; the output was read to its end.
    loop = asyncio.get_running_loop()
    loop.call_soon(child.process_exited)
    loop.call_soon(child.pipe_data_received, 1, b"its last words\n")
    with anyio.fail_after(20):
        while not ended:
            await anyio.lowlevel.checkpoint()

    assert ended == [[b"its last words\n"]]


async def test_what_is_handed_over_in_one_turn_of_the_loop_is_one_write() -> None:
    ear = Ear(2)
    child = child_of(ear)
    with anyio.fail_after(20):
        async with run_child(running(COUNTS_READS), child):
            for line in (b"one\n", b"two\n", b"three\n"):
                child.write(line)
            while not ear.said:
                await anyio.lowlevel.checkpoint()
            child.write(b"four\n")
            await ear.enough.wait()

    assert ear.said == b"14\n5\n"


async def test_what_is_handed_over_last_arrives_in_full(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    child = child_of(Ear(1))
    with anyio.fail_after(20):
        async with run_child(running(KEEPS, str(kept)), child):
            child.write(b"a" * 7_000)
            child.write(b"b\n")

    assert kept.read_bytes() == b"a" * 7_000 + b"b\n"


async def test_after_the_end_nothing_is_written() -> None:
    ear = Ear(1)
    child = child_of(ear)
    with anyio.fail_after(20):
        async with run_child(running(COUNTS_READS), child):
            child.write(b"first\n")
            await ear.enough.wait()
            child.end_conversation("enough")
            child.write(b"second\n")
            await anyio.lowlevel.checkpoint()

    assert ear.said == b"6\n"


async def test_a_process_that_does_not_read_leaves_no_room_even_within_a_turn() -> None:
    child = child_of(Ear(1))
    with anyio.fail_after(20):
        async with run_child(running("import time; time.sleep(60)"), child):
            for _ in range(8):
                child.write(b"x" * 100_000)

            assert not child.room.is_set()


CHATTERS = """
import sys
for fd in (1, 2):
    with open(fd, "wb", closefd=False) as out:
        out.write(b"y\\n" * 30_000)
"""


async def test_process_that_writes_very_many_lines_lets_others_have_their_turn_and_loses_none() -> None:
    heard: list[bytes] = []
    complained: list[bytes] = []
    ended: list[int] = []

    class Listening(ServerLog):
        def stderr(self, data: bytes) -> None:
            complained.append(data)

    child = Child(heard.append, lambda cause: ended.append(len(heard)), LOG, Listening(LOG))
    with anyio.fail_after(20):
        async with run_child(running(CHATTERS), child):
            while not ended:
                await anyio.lowlevel.checkpoint()
            while len(b"".join(complained)) < 60_000:
                await anyio.lowlevel.checkpoint()

    for pieces in (heard, complained):
        assert b"".join(pieces) == b"y\n" * 30_000
        assert max(piece.count(b"\n") for piece in pieces) <= PORTION
    assert ended == [len(heard)]


@pytest.mark.parametrize("size", [6, 60_000])
async def test_output_that_is_read_only_after_the_time_for_last_words_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr("gateway.proxy.transport.stdio.server_process._LAST_WORDS", 0)
    heard: list[bytes] = []
    ended: list[int] = []

    class Late(Child):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            self._stdout().pause_reading()

        def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
            if self.exited.is_set():
                super().pipe_connection_lost(fd, exc)

        def process_exited(self) -> None:
            self._stdout().resume_reading()
            super().process_exited()

        def _stdout(self) -> asyncio.ReadTransport:
            return cast("asyncio.ReadTransport", self._transport.get_pipe_transport(1))

    child = Late(heard.append, lambda cause: ended.append(sum(map(len, heard))), LOG, ServerLog(LOG))
    writes = f"import os, time; time.sleep(0.2); os.write(1, b'12345\\n' * {size // 6})"
    with anyio.fail_after(60):
        async with run_child(running(writes), child):
            while not ended:
                await anyio.lowlevel.checkpoint()

    assert ended == [size]


@pytest.mark.parametrize("turns", range(6))
async def test_start_that_nobody_wants_any_more_leaves_no_process_and_no_pipe(
    turns: int, is_running: Callable[[int], bool], descriptors: Callable[[], int]
) -> None:
    waits = UpstreamConfig("it", command="cat")
    async with run_child(waits, child_of(Ear(1))):
        # The loop opens for the first process what it keeps for all.
        pass
    child = child_of(Ear(1))
    gc.collect()
    before = descriptors()

    async def give_up() -> None:
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(give_up)
            async with run_child(waits, child):
                await anyio.sleep_forever()

    # What was not closed warns when it is freed, and a warning is an error here.
    pid = child.pid
    del child
    gc.collect()
    assert not is_running(pid)
    assert descriptors() <= before
