"""Bolt-on servers on real sockets that answer as a test says, and the manifests that name them."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from gateway.config.gateway_config import UpstreamConfig
from leaf_sdk.leaf.bolt_on import CodecToolCall, CodecToolResult
from leaf_sdk.testing import tiny_map
from leaf_sdk.vocab import TokenMap

TINY = tiny_map()
HASH = TINY.map_id.removeprefix("sha256:")
OTHER_HASH = "ab" * 32
MEDIA_TYPE = b"application/x-msgpack"
Answer = Callable[[CodecToolCall], CodecToolResult | bytes | Awaitable[CodecToolResult | bytes]]


def http(body: bytes, *, status: bytes = b"200 OK", kind: bytes = MEDIA_TYPE) -> bytes:
    """A whole HTTP answer."""
    return b"HTTP/1.1 %s\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s" % (status, kind, len(body), body)


@dataclass
class BoltOnServer:
    """One server: what it was asked, where it is, and what it answers."""

    answer: Answer
    endpoint: str = ""
    calls: list[CodecToolCall] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)

    async def talk(self, stream: SocketStream) -> None:
        """One connection."""
        async with stream:
            data = b""
            try:
                while True:
                    while b"\r\n\r\n" not in data:
                        data += await stream.receive()
                    head, _, data = data.partition(b"\r\n\r\n")
                    text = head.decode().lower()
                    length = int(text.partition("content-length: ")[2].partition("\r\n")[0] or 0)
                    while len(data) < length:
                        data += await stream.receive()
                    body, data = data[:length], data[length:]
                    self.heads.append(text)
                    await stream.send(await self._answered(body))
            except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                return

    async def _answered(self, body: bytes) -> bytes:
        call = CodecToolCall.from_bytes(body)
        self.calls.append(call)
        made = self.answer(call)
        said = await made if isinstance(made, Awaitable) else made
        return said if isinstance(said, bytes) else http(said.to_bytes(call.dialect))


@asynccontextmanager
async def serving(answer: Answer, *, path: Path | None = None, port: int = 0) -> AsyncGenerator[BoltOnServer]:
    """A server while the context lasts: on a unix socket at `path`, else on a port of this machine."""
    server = BoltOnServer(answer)
    if path is None:
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port)
        server.endpoint = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
    else:
        listener = await anyio.create_unix_listener(path)
        server.endpoint = f"unix:{path}"
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.talk)
        yield server
        tasks.cancel_scope.cancel()


def manifest(name: str = "tell", *, hashes: tuple[str, ...] = (HASH,), **more: Any) -> dict[str, Any]:
    """A manifest of one tool that takes a `place`, with ids for models `org/0`, `org/1`, ..."""
    return {
        "schema": "1",
        "name": name,
        "version": "1",
        "description": "Tell of a place",
        "argumentsSchema": {"type": "object", "properties": {"place": {"type": "string"}}},
        "models": [{"modelId": f"org/{n}", "tokenizerHash": each} for n, each in enumerate(hashes)],
        **more,
    }


@dataclass
class Accepted:
    """The maps that a gateway accepts."""

    by_hash: dict[str, TokenMap]


ACCEPTED = Accepted({HASH: TINY})


@pytest.fixture
def bolt_on(tmp_path: Path) -> Callable[..., UpstreamConfig]:
    """Makes the configuration of bolt-ons whose manifests it writes."""

    def make(*manifests: dict[str, Any], name: str = "bolt", **settings: Any) -> UpstreamConfig:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        for each in manifests:
            (folder / f"{each['name']}.json").write_text(json.dumps(each))
        return UpstreamConfig(name=name, manifest=str(folder), protocol="modern", **settings)

    return make


@pytest.fixture
def http_of() -> Callable[..., Any]:
    """Serves one JSON document to whoever asks, whatever they ask for."""

    @asynccontextmanager
    async def serve(body: Callable[[], bytes]) -> AsyncGenerator[str]:
        async def talk(stream: SocketStream) -> None:
            async with stream:
                try:
                    while await stream.receive():
                        await stream.send(http(body(), kind=b"application/json"))
                except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, talk)
            yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
            tasks.cancel_scope.cancel()

    return serve
