"""`serve --workers 2` with servers over stdio: one process each, whichever worker is asked."""

import os
import signal
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.e2e.conftest import running_gateway
from tests.e2e.test_replicas import initialized, post
from tests.e2e.test_workers import WORKERS, Gateway

pytestmark = pytest.mark.anyio


@pytest.fixture
def gateway(tmp_path: Path, server: Callable[..., Any]) -> Iterator[Gateway]:
    with running_gateway(tmp_path, {"counts": server("counts"), "asks": server("asks")}, *WORKERS) as running:
        yield Gateway(running)


class Caller:
    """A client of 2025 on a connection that one worker has; it can't be asked."""

    def __init__(self, http: httpx2.AsyncClient, url: str, session: str) -> None:
        self._http, self._url, self._session = http, url, session

    async def count(self) -> tuple[int, int]:
        """How often the server was called, and which process it is."""
        with anyio.fail_after(60):
            answer = await post(self._http, self._url, "tools/call", {"name": "counts__say"}, self._session)
        number, pid = answer.json()["result"]["content"][0]["text"].split()
        return int(number), int(pid)


@asynccontextmanager
async def callers(gateway: Gateway) -> AsyncGenerator[tuple[Caller, Caller]]:
    async with gateway.reached(0) as one, gateway.reached(1) as other:
        yield (
            Caller(one, gateway.url, await initialized(one, gateway.url)),
            Caller(other, gateway.url, await initialized(other, gateway.url)),
        )


async def test_server_counts_on_over_both_workers_and_over_the_death_of_one(
    gateway: Gateway, is_running: Callable[[int], bool]
) -> None:
    async with callers(gateway) as (one, other):
        counted = [await each.count() for each in (one, other, one, other)]
        os.kill(gateway.pids()[0], signal.SIGKILL)
        after = await other.count()
        gateway.running.log.wait_for("a worker is ready again")
    async with callers(gateway) as (again, other):
        counted += [after, await again.count(), await other.count()]

    assert [number for number, _ in counted] == [1, 2, 3, 4, 5, 6, 7]
    assert len({pid for _, pid in counted}) == 1
    gateway.running.process.terminate()
    assert gateway.running.process.wait(30) == 0
    assert not is_running(counted[0][1])


async def test_server_that_is_killed_is_started_once_again_for_both_workers(gateway: Gateway) -> None:
    async with callers(gateway) as (one, other):
        _, pid = await one.count()
        os.kill(pid, signal.SIGKILL)
        gateway.running.log.wait_for("upstream is up", count=6)
        again = [await each.count() for each in (one, other)]

    assert [number for number, _ in again] == [1, 2]
    assert pid not in {each for _, each in again}
    assert len({each for _, each in again}) == 1


async def test_server_ends_with_a_parent_that_is_killed(gateway: Gateway) -> None:
    async with callers(gateway) as (one, _):
        _, pid = await one.count()
    server = os.pidfd_open(pid)
    gateway.running.process.kill()
    gateway.running.log.close()
    with anyio.fail_after(30):
        # It can be read once the process has ended.
        await anyio.wait_readable(server)
    os.close(server)


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_that_can_be_asked_has_a_process_of_its_own_whichever_worker_it_reaches(
    gateway: Gateway, mode: str
) -> None:
    with anyio.fail_after(60):
        async with gateway.client_of_both(mode) as (client, _):
            asked = [await client.call_tool("asks__ask", {"about": f"{n}"}) for n in range(4)]

    assert [each.content[0].text for each in asked] == [f"yes to {n}" for n in range(4)]
