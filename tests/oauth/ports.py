"""Ports for servers of tests."""

import asyncio
import socket

import anyio

_START = 180.0


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


async def listening(port: int) -> None:
    """Wait until something listens there."""
    with anyio.fail_after(_START):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await anyio.sleep(0.2)
            else:
                writer.close()
                return
