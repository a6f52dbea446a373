"""Servers that go wrong when they are told to, gateways in front of them, and a look into a process."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from anyio.abc import Process

from tests.e2e.faults.clients import HttpClient, StdioClient, http_client

SERVERS = Path(__file__).parent / "servers"


class Heard:
    """What a process says on its standard error, by lines of JSON."""

    def __init__(self, process: Process) -> None:
        self.lines: list[str] = []
        self._process = process
        self._changed = anyio.Event()

    async def read(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        with suppress(anyio.ClosedResourceError):
            async for part in self._process.stderr:
                *lines, rest = (rest + part).split(b"\n")
                self.lines += [line.decode() for line in lines]
                self._changed.set()
                self._changed = anyio.Event()

    async def until(self, words: str) -> str:
        """The first line with these words."""
        while True:
            found = [line for line in self.lines if words in line]
            if found:
                return found[0]
            await self._changed.wait()


@asynccontextmanager
async def stdio_gateway(
    folder: Path, servers: Mapping[str, Any], *, stdout: int = subprocess.PIPE
) -> AsyncGenerator[tuple[Process, Heard]]:
    """`codec-gateway stdio` as a process, to which nothing was said yet; it is killed if it does not leave."""
    config = folder / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    command = [sys.executable, "-m", "gateway", "stdio", "--config", str(config)]
    # Nothing is known of these servers from an earlier run.
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    pipes = {"stdout": stdout, "stderr": subprocess.PIPE}
    async with anyio.create_task_group() as tasks:
        async with await anyio.open_process(command, cwd=folder, env=environ, **pipes) as process:
            heard = Heard(process)
            tasks.start_soon(heard.read)
            try:
                yield process, heard
            finally:
                if process.returncode is None:
                    process.kill()
        tasks.cancel_scope.cancel()


@pytest.fixture(scope="session")
def faulty() -> Callable[..., dict[str, Any]]:
    """Makes the entry of a server on standard streams that does as it is told."""

    def make(*args: str, **more: Any) -> dict[str, Any]:
        return {"command": sys.executable, "args": [str(SERVERS / "faulty.py"), *args], **more}

    return make


@pytest.fixture
def faulty_http() -> Iterator[Callable[..., tuple[dict[str, Any], subprocess.Popen[str]]]]:
    """Starts such servers over HTTP: the entry, and the process."""
    running: list[subprocess.Popen[str]] = []

    def start(port: int = 0) -> tuple[dict[str, Any], subprocess.Popen[str]]:
        command = [sys.executable, str(SERVERS / "faulty_http.py"), str(port)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stdout is not None
        return {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}, process

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.fixture
def client_of() -> Callable[[Any, str], AbstractAsyncContextManager[HttpClient]]:
    """A client of a running gateway over HTTP: `client_of(gateway, era)`."""
    return lambda gateway, era="modern": http_client(gateway.url, era)


@pytest.fixture
def stdio_of(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[tuple[Process, Heard]]]:
    """A gateway on standard streams: `stdio_of(servers)`."""
    return partial(stdio_gateway, tmp_path)


@pytest.fixture
def stdio_client() -> type[StdioClient]:
    return StdioClient


@pytest.fixture
def told() -> Callable[..., Any]:
    """Waits until servers have said these words so many times, as the gateway's log has it."""

    def count(gateway: Any, words: str) -> int:
        return sum(words in entry["line"] for entry in gateway.log.events("upstream stderr"))

    def wait(gateway: Any, words: str, times: int) -> None:
        seen = 0
        while count(gateway, words) < times:
            seen += 1
            gateway.log.wait_for("upstream stderr", count=seen)

    async def until(gateway: Any, words: str, times: int = 1) -> None:
        await anyio.to_thread.run_sync(wait, gateway, words, times)

    return until


@pytest.fixture
def logged() -> Callable[..., Any]:
    """Waits for an event of the gateway's log: `await logged(gateway, words)`."""

    async def until(gateway: Any, words: str, count: int = 1) -> dict[str, Any]:
        return await anyio.to_thread.run_sync(partial(gateway.log.wait_for, words, count=count))

    return until


@pytest.fixture
def pids_of() -> Callable[[Any], list[int]]:
    """The processes of faulty servers, as they said by themselves."""

    def read(gateway: Any) -> list[int]:
        lines = [entry["line"] for entry in gateway.log.events("upstream stderr")]
        return [int(line.split()[1]) for line in lines if line.startswith("pid ")]

    return read


@pytest.fixture
def own(tmp_path: Path) -> Callable[[str], None]:
    """Writes the settings of ours beside the gateway's file of servers."""
    return lambda text: (tmp_path / "codec-gateway.toml").write_text(text) and None


def bytes_of(pid: int) -> int:
    """Bytes that a process holds now; 0 where /proc is missing."""
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))


@pytest.fixture
def memory_of() -> Callable[[int], int]:
    return bytes_of
