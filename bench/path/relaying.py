"""What passing on a stream costs at least: bytes from an engine to its client that nobody looks at.

`python -m bench.path.relaying URL PORT` listens on a port and joins each connection to one of its own to the engine, in
both directions, with uvloop: the floor for everything between the two, in Python. `stand.py` starts it.
"""

import asyncio
import sys
from typing import cast
from urllib.parse import urlsplit

import uvloop


class _End(asyncio.Protocol):
    """One end: what arrives here goes out at the other."""

    def __init__(self, other: "_End | None" = None) -> None:
        self._other = other
        self._held: list[bytes] = []
        self._out: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._out = cast("asyncio.Transport", transport)
        if self._held:
            self._out.writelines(self._held)

    def data_received(self, data: bytes) -> None:
        if self._other is not None:
            self._other.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._other is not None:
            self._other.close()

    def join(self, other: "_End") -> None:
        """Pass everything on to the other end from now on."""
        self._other = other

    def write(self, data: bytes) -> None:
        """Send these bytes, as soon as it is connected."""
        if self._out is None:
            self._held.append(data)
        else:
            self._out.write(data)

    def close(self) -> None:
        """Close after what was written."""
        if self._out is not None:
            self._out.close()


class _Client(_End):
    """The client's end; opens another one to the engine."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__()
        self._address = host, port

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        engine = _End(self)
        self.join(engine)
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(loop.create_connection(lambda: engine, *self._address))


async def _serve(url: str, port: int) -> None:
    engine = urlsplit(url)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Client(engine.hostname or "", engine.port or 80), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(sys.argv[1], int(sys.argv[2])))
