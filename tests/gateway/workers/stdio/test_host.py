"""Workers that share a server's process over the parent's socket, on both event loops."""

import asyncio
import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.protocol.messages import encode_request
from gateway.proxy.transport.stdio.hosted import Wanted
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, Transport
from gateway.workers.stdio import shared_process, switch

pytestmark = pytest.mark.anyio

COUNTER = """
import os
from transport import answer, requests
count = 0
for message in requests():
    if message.get("method") == "tools/call":
        count += 1
        answer(message, {"count": count, "pid": os.getpid(), "text": message.get("params", {}).get("text")})
    elif message.get("method") == "initialize":
        answer(message, {"pid": os.getpid()})
"""


ENVIRONMENT = """
import os
from transport import answer, requests
for message in requests():
    answer(message, {"proxy": os.environ.get("HTTPS_PROXY"), "secret": os.environ.get("OUR_SECRET")})
"""


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


async def call(transport: Transport, **params: Any) -> dict[str, Any]:
    with anyio.fail_after(30):
        return await transport.request("tools/call", {"name": "x", **params})


def heard(notes: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in notes.read_text().splitlines()]


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def gone(pid: int) -> None:
    with anyio.fail_after(30):
        while lives(pid):  # noqa: ASYNC110
            await anyio.sleep(0.01)


@pytest.mark.parametrize(("inherit", "seen"), [((), "http://proxy"), (False, None), (("OUR_*",), "http://proxy")])
async def test_shared_process_inherits_what_its_server_may(host, opened, upstream, monkeypatch, inherit, seen):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy")
    monkeypatch.setenv("OUR_SECRET", "hunter2")
    config = replace(upstream(ENVIRONMENT), inherit_env=inherit)
    async with host(), opened(config) as one:
        told = await call(one)

    assert (told["proxy"], told["secret"]) == (seen, "hunter2" if inherit else None)


async def test_workers_share_one_process_and_a_borrowed_one_is_its_own(host, opened, upstream):
    config = upstream(COUNTER)
    async with host(), opened(config) as one, opened(config) as two, opened(config, own=True) as own:
        answers = [await call(each) for each in (one, two, one, two)]
        apart = await call(own)

    assert [each["count"] for each in answers] == [1, 2, 3, 4]
    assert len({each["pid"] for each in answers}) == 1
    assert apart["count"] == 1
    assert apart["pid"] != answers[0]["pid"]


async def test_two_hundred_calls_at_once_of_two_workers_are_all_answered_to_who_asked(host, opened, upstream):
    config = upstream(COUNTER)
    async with host(), opened(config) as one, opened(config) as two:
        texts = [(worker, f"{number} {'x' * 500 * number}") for number in range(100) for worker in (one, two)]
        answers = await asyncio.gather(*(call(worker, text=text) for worker, text in texts))

    assert [each["text"] for each in answers] == [text for _, text in texts]
    assert sorted(each["count"] for each in answers) == list(range(1, 201))


async def test_socket_is_its_owners_alone(host, socket):
    async with host():
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600


async def test_process_ends_with_the_last_worker_and_before_that_one_is_through(host, opened, upstream):
    config = upstream(COUNTER)
    async with host():
        async with opened(config) as two:
            async with opened(config) as one:
                pid = (await call(one))["pid"]
            assert (await call(two))["pid"] == pid
        assert not lives(pid)
        async with opened(config) as three:
            assert (await call(three))["count"] == 1


async def test_process_that_dies_is_told_to_all_and_the_next_one_shared_again(host, opened, upstream):
    config = upstream("puppet")
    async with host(), opened(config) as one, opened(config) as two:
        with pytest.raises(LinkLost, match=r"its process ended \(exit code 7\)"):
            await call(one, arguments={"exit": 7})
        await two.closed.wait()
        with pytest.raises(LinkLost, match="exit code 7"):
            await call(two)
        async with opened(config) as three, opened(config) as four:
            assert await call(three) == await call(four) == {"done": True}


async def test_program_that_is_not_there_is_told_as_without_workers(host, opened, upstream):
    config = replace(upstream(COUNTER), command="/nowhere/at-all")
    async with host():
        for own in (False, True):
            with pytest.raises(FileNotFoundError, match="No such file"):
                async with opened(config, own=own):
                    pass


async def test_parent_that_is_gone_is_told(host, opened, upstream):
    config = upstream(COUNTER)
    with pytest.raises(LinkLost, match="parent"):
        async with opened(config):
            pass
    async with host() as _, opened(config) as left:
        pid = (await call(left))["pid"]
    await gone(pid)


async def test_requests_of_a_worker_that_dies_are_cancelled_and_the_other_goes_on(host, opened, upstream, notes):
    config = upstream("puppet")
    async with host(), opened(config) as one, opened(config) as two:
        async with anyio.create_task_group() as tasks:

            async def lost() -> None:
                with pytest.raises(LinkLost):
                    await call(one, arguments={"answer": False})

            tasks.start_soon(lost)
            await anyio.wait_all_tasks_blocked()
            await call(two)
            asked = heard(notes)[0]["id"]
            one.pipe._socket.abort()
        for _ in range(2):
            await call(two)
        assert await call(two, arguments={"lines": [json.dumps({"jsonrpc": "2.0", "id": asked, "result": {}})]})

    cancelled = [each["params"]["requestId"] for each in heard(notes) if each["method"] == "notifications/cancelled"]
    assert cancelled == [asked]


async def test_worker_that_does_not_read_is_cut_and_holds_up_nobody(
    host, opened, upstream, socket, monkeypatch, caplog
):
    monkeypatch.setattr(shared_process, "_UNREAD", 1)
    config = upstream(COUNTER)
    async with host(), opened(config) as reads:
        reader, writer = await asyncio.open_unix_connection(str(socket), limit=1)
        writer.write(Wanted.by(config, {}, shared=True, line_bound=100_000).as_line())
        number = int((await reader.read(100))[1:])
        for each in range(40):
            writer.write(encode_request(number + each, "tools/call", {"text": "x" * 90_000}) + b"\n")
        with anyio.fail_after(60):
            while "a worker does not read" not in caplog.text:
                assert (await call(reads, text="y"))["text"] == "y"
        writer.transport.abort()


async def test_server_that_does_not_read_holds_up_who_asks_and_nobody_who_leaves(host, opened, upstream):
    config = upstream("deaf")
    async with host(), opened(config) as one, opened(config) as two:
        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(lambda: one.request("tools/call", {"text": "x" * 90_000}))
            with anyio.fail_after(30):
                while not (one.pipe.full and two.pipe.full):  # noqa: ASYNC110
                    await anyio.sleep(0.01)
            with anyio.move_on_after(0.1) as gave_up:
                await two.request("tools/call", {})
            assert gave_up.cancelled_caught
            tasks.cancel_scope.cancel()
        async with opened(config) as three:
            assert three.pipe.full


async def test_server_that_hangs_is_ended_for_all_when_one_gets_no_sign_of_life(host, opened, upstream, monkeypatch):
    monkeypatch.setattr(switch, "SILENCE", 0.0)
    config = upstream("silent")
    async with host(), opened(config) as other:
        async with opened(config) as asks:
            with anyio.move_on_after(0.1):
                await asks.request("ping", {})
        with anyio.fail_after(30):
            await other.closed.wait()
        with pytest.raises(LinkLost, match="did not respond"):
            await call(other)


async def test_answer_over_the_bound_fails_its_own_call(host, opened, upstream):
    config = upstream("puppet")
    long = '{"jsonrpc":"2.0","id":$ID,"result":{"x":"%s"}}' % ("x" * 200_000)
    async with host(), opened(config) as one, opened(config) as two:
        with pytest.raises(NoAnswer, match=r"limits\.result_bytes"):
            await call(one, arguments={"lines": [long], "answer": False})
        assert await call(two) == {"done": True}


async def test_what_a_server_writes_that_is_no_message_and_its_standard_error_are_logged(
    host, opened, upstream, caplog
):
    caplog.set_level("INFO")
    config = upstream("puppet")
    async with host(), opened(config) as one:
        await call(one, arguments={"lines": ["Listening", "F"], "errors": ["a word"]})
        await call(one)

    said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [each["line"] for each in said if "JSON-RPC" in each["event"]] == ["Listening", "F"]
    assert [each["line"] for each in said if each["event"] == "upstream stderr"] == ["a word"]


async def test_connection_that_does_not_greet_as_a_worker_is_cut(host, socket, opened, upstream):
    async with host():
        for greeting in (b"GET / HTTP/1.1\r\n\r\n", b"{}\n", b"", b'{"command": 7}\n'):
            reader, writer = await asyncio.open_unix_connection(str(socket))
            writer.write(greeting)
            if not greeting:
                writer.write_eof()
            with anyio.fail_after(30):
                assert await reader.read() == b""
            writer.close()
        async with opened(upstream(COUNTER)) as one:
            assert (await call(one))["count"] == 1


async def test_process_whose_numbers_are_used_up_is_ended(host, opened, upstream, monkeypatch):
    monkeypatch.setattr(shared_process.hosted, "MOST_CONNECTIONS", 2)
    config = upstream(COUNTER)
    async with host(), opened(config) as one:
        pid = (await call(one))["pid"]
        with pytest.raises(LinkLost, match="no numbers left"):
            async with opened(config) as two:
                await call(two)
        await one.closed.wait()
        await gone(pid)


LINGERS = """
import time
from transport import answer, requests
for message in requests():
    answer(message, {})
time.sleep(60)
"""


async def test_worker_that_waits_for_a_process_to_end_is_told_when_all_end(host, upstream, socket):
    async def open_line(config: UpstreamConfig) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(str(socket))
        writer.write(Wanted.by(config, {}, shared=True, line_bound=1000).as_line())
        return reader, writer

    lines = []
    with anyio.fail_after(30):
        async with host():
            lines.append(await open_line(upstream(LINGERS)))
            assert await lines[0][0].readline() != b""
            lines[0][1].write_eof()
            lines.append(await open_line(upstream(LINGERS)))
            # What came before was heard before.
            lines.append(await open_line(upstream(COUNTER)))
            assert await lines[2][0].readline() != b""

        assert await lines[1][0].read() == b""
    for _, writer in lines:
        writer.close()
