"""Workers that follow a script: what they say of themselves to their parent, and what their processes do."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from gateway.errors import GatewayError
from gateway.workers.handover import Order, admin_socket

READY: dict[str, Any] = {"ready": True, "draining": False, "components": {"gateway": True}, "reasons": []}
COUNTED = "# HELP codec_calls_total Calls.\n# TYPE codec_calls_total counter\ncodec_calls_total {}.0\n"


@asynccontextmanager
async def answering(folder: Path, number: int, pages: dict[str, Any]) -> AsyncGenerator[list[str]]:
    """Answer a parent's questions as this worker: with a text, with JSON, or, where there is None, not at all.

    Yields the paths that it was asked for.
    """
    asked: list[str] = []
    tasks: set[asyncio.Task[Any]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())  # pyright: ignore[reportArgumentType]
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        asked.append(path)
        page = pages[path]
        try:
            if page is None:
                await anyio.sleep_forever()
            body = page if isinstance(page, str) else json.dumps(page)
            writer.write(f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())
            await writer.drain()
        finally:
            writer.close()

    server = await asyncio.start_unix_server(answer, str(admin_socket(folder, number)))
    try:
        yield asked
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass
class Run:
    """One start of a worker."""

    fault: GatewayError | None = None
    hangs: bool = False
    """Whether it never becomes ready."""
    obeys: bool = True
    """Whether it ends when it is told to drain."""
    pid: int = 7
    orders: list[Order] = field(default_factory=list[Order])
    over: anyio.Event = field(default_factory=anyio.Event)
    was_ready: anyio.Event = field(default_factory=anyio.Event)
    status: int = 0

    async def ready(self) -> None:
        """Wait until it is."""
        if self.hangs:
            await anyio.sleep_forever()
        if self.fault is not None:
            raise self.fault
        self.was_ready.set()

    def order(self, order: Order) -> None:
        """Take an order of the parent."""
        self.orders.append(order)
        if order == "drain" and self.obeys:
            self.over.set()

    def crash(self) -> None:
        """End by a signal that nobody expected."""
        self.status = -9
        self.over.set()

    async def ended(self) -> int:
        """Wait for its end."""
        await self.over.wait()
        return self.status
