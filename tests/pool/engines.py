"""Real llama.cpp servers at addresses of their own, which a test kills, stops and exchanges for another tokenizer's."""

import os
import random
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from bench.processes import free_port
from gateway.config import EngineConfig
from gateway.engine.embedded.engine_process import EmbeddedServer, Listening, embedded_server
from leaf_sdk.testing import tiny_map
from tests.gateway.engine.engines import FakeEngine

HANG = 14.0
"""Seconds: longer than it takes to be noticed."""


@dataclass
class Address:
    """One address, and the server that is there now."""

    settings: EngineConfig
    port: int = field(default_factory=free_port)
    server: EmbeddedServer | None = None
    intruder: FakeEngine = field(default_factory=lambda: FakeEngine(tiny_map()))
    """An engine of another tokenizer, which takes the address for a while."""
    exchanging: bool = False
    hangs: bool = False
    losses: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def run(self, up: anyio.Event) -> None:
        """Start a server, and another whenever one has ended."""
        while True:
            async with embedded_server(self.settings, Listening("127.0.0.1", self.port, None)) as server:
                self.server = server
                up.set()
                await server.ended()
            self.server = None
            if self.exchanging:
                await self._intrude()

    async def _intrude(self) -> None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=self.port, reuse_port=False)
        async with listener:
            with anyio.move_on_after(4):
                await listener.serve(self.intruder.serve)
        self.exchanging = False

    async def lose(self, how: str) -> None:
        """Have it killed, hang or exchanged; return when that has begun (a hang: when it is over)."""
        server = self.server
        if server is None:
            return
        self.losses += 1
        if how == "hang":
            os.kill(server.pid, signal.SIGSTOP)
            self.hangs = True
            await anyio.sleep(HANG)
            if server is self.server:
                os.kill(server.pid, signal.SIGCONT)
            self.hangs = False
            return
        self.server = None
        self.exchanging = how == "exchange"
        os.kill(server.pid, signal.SIGKILL)


@asynccontextmanager
async def addresses(count: int, settings: EngineConfig) -> AsyncGenerator[list[Address]]:
    """So many running servers."""
    found = [Address(settings) for _ in range(count)]
    async with anyio.create_task_group() as tasks:
        await _start(found, tasks)
        yield found
        tasks.cancel_scope.cancel()


async def _start(found: list[Address], tasks: TaskGroup) -> None:
    events = [anyio.Event() for _ in found]
    for address, up in zip(found, events, strict=True):
        tasks.start_soon(address.run, up)
    for up in events:
        await up.wait()


async def havoc(
    found: list[Address],
    seconds: float,
    pause: tuple[float, float],
    draw: random.Random,
    *,
    is_open: Callable[[Address], bool],
) -> int:
    """Lose one after the other for so long, never the last that is well; gives how many times.

    `is_open`: whether the gateway uses it.
    """
    lost = 0
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(draw.uniform(*pause))
                well = [each for each in found if each.server is not None and not each.hangs and is_open(each)]
                if len(well) > 1:
                    lost += 1
                    tasks.start_soon(draw.choice(well).lose, draw.choice(["kill", "kill", "hang", "exchange"]))
    return lost
