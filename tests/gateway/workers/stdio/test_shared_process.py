"""A worker's connection to a shared process, without a socket: what is passed on, what is bounded, when it ends."""

from typing import Any

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.protocol.messages import encode_request
from gateway.proxy.transport.stdio.hosted import Wanted
from gateway.workers.stdio.shared_process import SharedProcess, WorkerLine

pytestmark = pytest.mark.anyio
CONFIG = UpstreamConfig("up", "program")


def wanted(bound: int = 1000) -> Wanted:
    return Wanted.by(CONFIG, {}, shared=True, line_bound=bound)


class Socket:
    """What a connection writes to."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.waiting = 0
        self.closed: list[str] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return bool(self.closed)

    def close(self) -> None:
        self.closed.append("closed")

    def abort(self) -> None:
        self.closed.append("cut")


class Host:
    """Notes who wants what, and is its process."""

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []
        self.received: list[bytes] = []
        self.left = 0

    def connect(self, line: WorkerLine, wanted: Wanted) -> None:
        self.wanted.append(wanted)

    def receive(self, line: WorkerLine, data: bytes) -> None:
        self.received.append(data)

    def leave(self, line: WorkerLine) -> None:
        self.left += 1


def connected(host: Host | None = None) -> tuple[WorkerLine, Socket]:
    line, socket = WorkerLine(host or Host()), Socket()
    transport: Any = socket
    line.connection_made(transport)
    return line, socket


async def test_first_line_says_what_is_wanted_and_the_others_are_for_the_process() -> None:
    host = Host()
    line, socket = connected(host)
    line.data_received(wanted().as_line() + b"early\n")
    line.talk_to(host, 3)
    line.data_received(b"one\ntw")
    line.data_received(b"o\n")
    line.write(b"out\n")

    assert [each.server for each in host.wanted] == ["up"]
    assert (host.received, line.number, socket.written) == ([b"one", b"two"], 3, [b"out\n"])


async def test_worker_leaves_once_and_waits_for_the_end_of_what_it_used() -> None:
    host = Host()
    line, socket = connected(host)
    line.data_received(wanted().as_line())
    line.talk_to(host, 1)
    assert line.eof_received() is True
    line.connection_lost(None)

    assert (host.left, line.over, socket.closed) == (1, True, [])


async def test_worker_that_wanted_nothing_yet_is_let_go_and_one_that_waits_is_kept() -> None:
    for greeting, closed in ((b"", ["closed"]), (wanted().as_line(), [])):
        line, socket = connected()
        line.data_received(greeting)
        line.eof_received()
        assert (line.over, socket.closed) == (True, closed)


@pytest.mark.parametrize(
    ("bound", "waiting", "closed"),
    [
        (1000, 16 * 1024 * 1024, []),
        (1000, 16 * 1024 * 1024 + 1, ["cut"]),
        (5 * 1024 * 1024, 20 * 1024 * 1024, []),
        (5 * 1024 * 1024, 20 * 1024 * 1024 + 1, ["cut"]),
    ],
)
async def test_worker_that_does_not_read_is_cut_over_the_bound(bound: int, waiting: int, closed: list[str]) -> None:
    line, socket = connected()
    line.data_received(wanted(bound).as_line())
    socket.waiting = waiting
    line.write(b"x\n")

    assert socket.closed == closed


async def test_nothing_is_written_to_who_has_not_greeted_or_is_gone() -> None:
    line, socket = connected()
    line.write(b"x\n")
    line.data_received(wanted().as_line())
    line.close()
    line.write(b"x\n")

    assert socket.written == []


async def test_line_of_a_worker_that_is_too_long_cuts_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.workers.stdio.shared_process._LONGEST", 2000)
    host = Host()
    line, socket = connected(host)
    line.data_received(wanted().as_line())
    line.talk_to(host, 1)
    line.data_received(b"x" * 3000 + b"\n" + b"after\n")

    assert (socket.closed, host.received) == (["cut"], [])
    assert "a worker sent a line that is too long" in caplog.text


async def test_cause_of_a_strange_greeting_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    _, socket = line = connected()
    line[0].data_received(b"GET / HTTP/1.1\n")

    assert socket.closed == ["cut"]
    assert "did not begin as a worker's does" in caplog.text


async def test_worker_that_left_says_nothing_any_more() -> None:
    process = SharedProcess(wanted())
    lines: list[Any] = []
    for _ in range(2):
        line, _ = connected()
        line.data_received(wanted().as_line())
        process.join(line)
        lines.append(line)
    process.leave(lines[0])
    process.leave(lines[0])
    assert not process.over.is_set()

    process.receive(lines[0], encode_request(1, "tools/call", {}))
    process.leave(lines[1])
    assert process.over.is_set()
    process.receive(lines[1], encode_request(1, "tools/call", {}))
