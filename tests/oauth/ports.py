"""Ports for servers of tests."""

import asyncio

import anyio

_START = 180.0


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
