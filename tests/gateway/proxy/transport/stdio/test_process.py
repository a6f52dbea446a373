"""What is handed to a real process: how it is written, and that none of it is lost."""

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config.model import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.proxy.transport.server_log import ServerLog
from gateway.proxy.transport.stdio.process import Child, run_child

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
