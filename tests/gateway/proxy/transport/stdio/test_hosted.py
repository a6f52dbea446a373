"""The lines between a worker and its parent, which runs a server's process for it."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.proxy.transport.stdio.hosted import (
    MOST_CONNECTIONS,
    SHIFT,
    HostedPipe,
    Wanted,
    ending,
    long_line,
    open_hosted,
    refusal,
    refused,
)
from gateway.proxy.transport.transport_interface import LinkLost

if TYPE_CHECKING:
    from gateway.proxy.transport.stdio.stdio_transport import StdioTransport

pytestmark = pytest.mark.anyio
GONE = "the gateway's parent process, which ran it, has ended"


class Conversation:
    """What the pipe passes on."""

    def __init__(self) -> None:
        self.got: list[tuple[Any, ...]] = []

    def take(self, line: bytes) -> None:
        self.got.append(("line", line))

    def take_question(self, line: bytes, exchange: object) -> None:
        self.got.append(("question", line, exchange))

    def count_from(self, number: int) -> None:
        self.got.append(("from", number))

    def warn_of_length(self, length: int) -> None:
        self.got.append(("long", length))

    def fail_too_long(self, number: int) -> None:
        self.got.append(("fail", number))

    def lose(self, cause: str) -> None:
        self.got.append(("lost", cause))


class Socket:
    """The socket to a parent that is not there."""

    def __init__(self) -> None:
        self.did: list[bytes | str] = []

    def write(self, data: bytes) -> None:
        self.did.append(data)

    def write_eof(self) -> None:
        self.did.append("eof")

    def abort(self) -> None:
        self.did.append("abort")


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


@pytest.fixture
def socket() -> Socket:
    return Socket()


@pytest.fixture
async def pipe(talk: Conversation, socket: Socket) -> HostedPipe:
    pipe = HostedPipe(cast("StdioTransport", talk), 100, cast("Any", "others"))
    pipe.connection_made(cast("asyncio.Transport", socket))
    return pipe


async def test_lines_of_the_process_and_notices_are_told_apart_however_they_are_cut(pipe, talk):
    said = b'W4096\n{"id":1}\n~{"id":2}\n?what\nL-1 700\nL0 800\nF\n'
    for n in range(len(said)):
        pipe.data_received(said[n : n + 1])

    assert talk.got == [
        ("from", 4096),
        ("line", b'{"id":1}'),
        ("question", b'{"id":2}', "others"),
        ("line", b"what"),
        ("long", 700),
        ("long", 800),
        ("fail", 0),
    ]
    assert pipe.begun.done()
    assert pipe.full


async def test_there_is_room_only_where_both_the_process_and_the_parent_read(pipe):
    seen = [(pipe.full, pipe.room.is_set())]
    for step in (
        lambda: pipe.data_received(b"F\n"),
        pipe.pause_writing,
        lambda: pipe.data_received(b"R\n"),
        pipe.resume_writing,
    ):
        step()
        seen.append((pipe.full, pipe.room.is_set()))

    assert seen == [(False, True), (True, False), (True, False), (True, False), (False, True)]


async def test_end_of_the_process_is_told_once_and_leaves_room_for_good(pipe, talk, socket):
    pipe.data_received(b"W0\nF\n")
    pipe.write(b"last\n")
    pipe.data_received(ending("it went") + b"\n")
    pipe.pause_writing()
    pipe.write(b"later\n")
    await anyio.lowlevel.checkpoint()
    pipe.connection_lost(None)

    assert talk.got == [("from", 0), ("lost", "it went")]
    assert socket.did == [b"last\n"]
    assert not pipe.full
    assert pipe.room.is_set()
    assert pipe.gone.is_set()


async def test_parent_that_ends_before_the_process_runs_is_a_lost_link(pipe, talk):
    pipe.connection_lost(None)
    with pytest.raises(LinkLost, match=GONE):
        await pipe.begun

    assert talk.got == [("lost", GONE)]


@pytest.mark.parametrize("error", [FileNotFoundError(2, "No such file", "/x"), OSError("too many")])
async def test_process_that_does_not_start_is_the_error_that_the_parent_had(pipe, talk, error):
    pipe.data_received(refusal(error) + b"\n")
    with pytest.raises(type(error)) as raised:
        await pipe.begun

    assert str(raised.value) == str(error)
    assert talk.got == [("lost", "its process could not be started")]


async def test_worker_that_leaves_says_so_unless_the_parent_is_gone(pipe, talk, socket):
    pipe.data_received(b"W0\n")
    pipe.leave()
    said = [*socket.did]
    pipe.connection_lost(None)
    pipe.leave()
    pipe.close()

    assert (said, socket.did) == (["eof"], ["eof", "abort"])
    assert talk.got[1:] == [("lost", "the gateway ended it")]


async def test_line_of_the_parent_beyond_what_was_agreed_is_a_defect(pipe):
    with pytest.raises(RuntimeError, match="longer than the agreed limit"):
        pipe.data_received(b"{" + b"x" * (100 + 64 * 1024) + b"\n")


async def test_notice_may_be_as_long_as_was_agreed(pipe, talk):
    line = b"{" + b"x" * (99 + 64 * 1024)
    pipe.data_received(line + b"\n")

    assert talk.got == [("line", line)]


def test_wanted_process_is_one_line_that_can_be_read_back_and_is_the_same_for_the_same_settings():
    config = UpstreamConfig("it", command="c", args=("a\nb",), env={"B": "2", "A": "1"}, inherit_env=("KEPT",))
    other = UpstreamConfig("it", command="c", args=("a\nb",), env={"A": "1", "B": "2"}, inherit_env=("KEPT",))
    wanted = Wanted.by(config, {"KEPT": "k", "SECRET": "s"}, shared=True, line_bound=7)
    line = wanted.as_line()

    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert Wanted.from_line(line) == wanted
    assert Wanted.by(other, {"KEPT": "k"}, shared=True, line_bound=7).as_line() == line
    assert json.loads(line)["env"] == {"A": "1", "B": "2", "KEPT": "k"}
    assert (wanted.server, wanted.command, wanted.concurrency) == ("it", "c", config.concurrency)
    assert wanted.cwd is None
    assert Wanted.by(replace(config, cwd=Path("/x")), {}, shared=True, line_bound=7).cwd == "/x"
    assert "s" not in wanted.env.values()
    assert "2" not in repr(wanted)


def test_notices_of_the_parent_say_what_they_were_made_from():
    error = refused(refusal(PermissionError(13, "Permission denied", "/x"))[1:])

    assert type(error) is PermissionError
    assert (error.errno, error.strerror, error.filename) == (13, "Permission denied", "/x")
    assert (long_line(None, 5), long_line(0, 5)) == (b"L-1 5", b"L0 5")
    assert ending("a\nb") == b'E"a\\nb"'


def test_numbers_of_all_connections_are_whole_numbers_in_every_language():
    assert (MOST_CONNECTIONS + 1) << SHIFT == 2**53


class Parent:
    """The parent of the workers, which says what a test has it say and stays until it may go."""

    def __init__(self, at: Path) -> None:
        self.at = at
        self.says = b"W4096\n"
        self.heard: list[Any] = []
        self.left = asyncio.Event()
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.gone = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(Wanted.from_line(await reader.readline()))
        writer.write(self.says)
        while line := await reader.readline():
            message = json.loads(line)
            self.heard.append(message)
            if "id" in message and "method" in message:
                writer.write(b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % message["id"])
        self.left.set()
        await self.may_go.wait()
        writer.close()
        self.gone.set()


class Client:
    """Answers what the server asks with its own name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def notified(self, method: str, params: dict[str, Any]) -> None:
        raise AssertionError

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"by": self._name}


@pytest.fixture
async def parent(tmp_path: Path) -> AsyncGenerator[Parent]:
    parent = Parent(tmp_path / "socket")
    async with await asyncio.start_unix_server(parent.serve, parent.at):
        yield parent


def hosted(parent: Parent, others: Client | None = None) -> Any:
    config = UpstreamConfig("it", command="c", env={"A": "1"})
    return open_hosted(
        config, Client("mine"), parent.at, unclaimed=others, line_bound=100, log=cast("Any", get_logger("test"))
    )


async def test_process_of_the_parent_is_talked_to_as_one_of_ours_and_left_before_the_context_ends(parent):
    with anyio.fail_after(20):
        async with hosted(parent) as transport:
            assert await transport.request("ping", {}) == {}
            left = parent.left.is_set()

    wanted, asked = parent.heard
    assert (wanted.command, wanted.env["A"], wanted.shared, wanted.line_bound) == ("c", "1", False, 100)
    assert asked["id"] == 4097
    assert (left, parent.gone.is_set()) == (False, True)


@pytest.mark.parametrize(("others", "answered"), [(None, "mine"), (Client("others"), "others")])
async def test_question_of_a_shared_process_is_answered_for_all_that_share_it(parent, others, answered):
    parent.says += b'~{"jsonrpc":"2.0","id":5,"method":"roots/list"}\n'
    with anyio.fail_after(20):
        async with hosted(parent, others) as transport:
            await transport.request("ping", {})

    wanted, *heard = parent.heard
    assert wanted.shared == (others is not None)
    assert {"jsonrpc": "2.0", "id": 5, "result": {"by": answered}} in heard


async def test_parent_that_is_not_there_is_a_lost_link_over_which_nothing_was_sent(parent):
    parent.at = parent.at.with_name("nobody")
    with pytest.raises(LinkLost, match=rf"{GONE} \(.*No such file") as lost:
        async with hosted(parent):
            pass

    assert not lost.value.sent


async def test_process_that_the_parent_can_not_start_is_its_error(parent):
    parent.says = refusal(FileNotFoundError(2, "No such file", "c")) + b"\n"
    with pytest.raises(FileNotFoundError):
        async with hosted(parent):
            pass

    assert parent.left.is_set()


async def test_caller_that_leaves_still_waits_for_the_end_of_the_process(parent):
    parent.may_go.clear()
    async with anyio.create_task_group() as tasks, hosted(parent):
        tasks.cancel_scope.cancel()
        asyncio.get_running_loop().call_later(0.01, parent.may_go.set)

    assert parent.gone.is_set()


async def test_parent_that_does_not_end_the_process_in_time_is_not_waited_for(parent, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.stdio.hosted._ENDING", 0.01)
    parent.may_go.clear()
    with anyio.fail_after(20):
        async with hosted(parent):
            pass
        parent.may_go.set()
