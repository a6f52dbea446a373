"""Everything that runs during a measurement: peers with servers behind them and clients in front of them.

Turns a peer and a topology into targets, one for each era, which `load.py` can drive. It measures nothing.
"""

import asyncio
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio

from bench.mcp.links import EventsLink, Link, connect, connect_events, start
from bench.mcp.load import Client, Era
from bench.mcp.peers import Peer, Server, http_command, lines_command
from bench.processes import Running, free_port, gateway_environment, running, wait_for_port

_READY_TIME: Final = 30.0
_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Target:
    """A running peer in one topology, and a client of one era in front of it."""

    peer: Peer
    topology: str
    era: Era
    tools: int
    pid: int | None
    """The process whose CPU time counts; None if nobody is in between."""
    client: Client = field(repr=False)


class Site:
    """Starts targets. Made by `async with`; leaving it ends everything."""

    def __init__(self, folder: Path, links: int) -> None:
        """`links`: HTTP connections of each client: the most calls at a time."""
        self._folder = folder
        self._links = links
        self._stack = AsyncExitStack()
        self._count = 0
        self._open: dict[tuple[str, str, int], tuple[Server, int, Running]] = {}

    async def __aenter__(self) -> "Site":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def launch(self, peer: Peer, topology: str, tools: int) -> list[Target]:
        """Start a peer with a server of its own behind it, and wait until calls go through.

        Raises:
            SystemExit: it does not start, or no call goes through.
        """
        if peer.same_as is not None:
            return await self._http_targets(peer, topology, *self._open[peer.same_as, topology, tools])
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir(parents=True)
        front, _, back = topology.partition("-")
        server = self._serve(back, tools, peer.leaves)
        if front == "stdio":
            return [await self._launch_lines(peer, topology, era, server, folder) for era in peer.eras]
        if peer.name == "direct":
            return await self._http_targets(peer, topology, server, urlsplit(server.url).port or 80, None)
        port = free_port()
        command, env = http_command(peer, topology, server, folder, port)
        program = self._stack.enter_context(running(peer.name, command, env=env, cwd=folder))
        wait_for_port(program, port)
        self._open[peer.name, topology, tools] = server, port, program
        return await self._http_targets(peer, topology, server, port, program)

    def _serve(self, side: str, tools: int, leaves: str | None) -> Server:
        more = [str(tools), *([leaves] if leaves else [])]
        module = [sys.executable, "-m", "bench.mcp.upstream"]
        if side == "none":
            return Server(tools)
        if side == "stdio":
            return Server(tools, command=(*module, "stdio", *more))
        port = free_port()
        program = self._stack.enter_context(running("upstream", [*module, str(port), *more]))
        wait_for_port(program, port)
        return Server(tools, url=f"http://127.0.0.1:{port}/mcp")

    async def _launch_lines(self, peer: Peer, topology: str, era: Era, server: Server, folder: Path) -> Target:
        """Start a process for one client: on standard input a client speaks one era."""
        command = lines_command(peer, topology, server, folder)
        env = gateway_environment(peer.code)
        log = folder / "log"
        link, process = await start(command, env=env, cwd=folder, log=log)
        self._stack.push_async_callback(_end, process)
        client = Client([link], era)
        try:
            await asyncio.wait_for(client.begin(), _READY_TIME)
        except (ConnectionError, TimeoutError) as error:
            raise _failed(peer, topology, error, log) from None
        return Target(peer, topology, era, server.tools, None if peer.name == "direct" else process.pid, client)

    async def _http_targets(
        self, peer: Peer, topology: str, server: Server, port: int, program: Running | None
    ) -> list[Target]:
        log = program.log if program else self._folder / "none"
        targets: list[Target] = []
        for era in peer.eras:
            client = await self._http_client(peer, topology, era, port, log)
            targets.append(Target(peer, topology, era, server.tools, program.pid if program else None, client))
        return targets

    async def _http_client(self, peer: Peer, topology: str, era: Era, port: int, log: Path) -> Client:
        """Return a client whose calls go through; some peers listen before they have reached their server."""
        deadline = anyio.current_time() + _READY_TIME
        while True:
            client = Client([], era, peer.headers)
            try:
                client.widen([first := await _open(peer, port)])
                await asyncio.wait_for(client.begin(), _READY_TIME)
            except (ConnectionError, KeyError, ValueError, TimeoutError) as error:
                client.close()
                if anyio.current_time() > deadline:
                    raise _failed(peer, topology, error, log) from None
                await anyio.sleep(_PAUSE)
            else:
                client.widen([await _open(peer, port, first) for _ in range(self._links - 1)])
                return client


async def _open(peer: Peer, port: int, first: Link | None = None) -> Link:
    """Open a link to a peer over HTTP; the older HTTP has one event stream for all links of a client."""
    host = "127.0.0.1"
    if peer.name != "mcp-hub":
        return await connect(host, port, "/mcp")
    if isinstance(first, EventsLink):
        return EventsLink(await connect(host, port, first.path), first.answers, first.path)
    answers, path = await connect_events(host, port, "/mcp")
    return EventsLink(await connect(host, port, path), answers, path)


def _failed(peer: Peer, topology: str, error: Exception, log: Path) -> SystemExit:
    said = log.read_text(encoding="utf-8", errors="replace")[-2000:] if log.is_file() else ""
    return SystemExit(f"{peer.name} {topology}: {error!r}\n{said}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()
