"""Real clients read the first ids of every coding while the stream is still open: httpx2, and curl with --compressed.

The server sends the rest only after the client has shown the first frame, so a client that can't read it yet would
wait for ever.
"""

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute, SocketStream

from leaf_sdk.wire import Frame, FrameReader, FrameWriter, open_encoder
from tests.cases import each_of

pytestmark = pytest.mark.anyio
STREAM = [Frame((7, 8)), Frame((9,)), Frame((300, 40_000)), Frame((), True, "eos_token")]


@asynccontextmanager
async def served(form, coding) -> AsyncIterator[tuple[str, anyio.Event]]:
    """Serve the stream once: its first frame at once, the others when the event is set."""
    seen = anyio.Event()

    async def answer(connection: SocketStream) -> None:
        async with connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += await connection.receive()
            head = f"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Encoding: {coding}\r\n\r\n"
            writer, encoder = FrameWriter(form), open_encoder(coding)
            await connection.send(head.encode() + encoder.write(writer.write(STREAM[0])) + encoder.flush())
            await seen.wait()
            for frame in STREAM[1:]:
                await connection.send(encoder.write(writer.write(frame)) + encoder.flush())
            if end := encoder.close():
                await connection.send(end)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}/", seen
        tasks.cancel_scope.cancel()


async def httpx2_pieces(url: str) -> AsyncIterator[bytes]:
    async with httpx2.AsyncClient() as client, client.stream("GET", url) as answer:
        async for data in answer.aiter_bytes():
            yield data


async def curl_pieces(url: str) -> AsyncIterator[bytes]:
    command = ["curl", "--silent", "--no-buffer", "--compressed", url]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        async for data in process.stdout:
            yield data


# A fresh machine need not have curl; where it is, it must be able to read us.
CLIENTS = [httpx2_pieces, *([curl_pieces] if shutil.which("curl") else [])]


@each_of("pieces", CLIENTS)
@each_of("coding", ["identity", "gzip", "br", "zstd"])
@each_of("form", ["msgpack", "protobuf"])
async def test_a_client_reads_the_first_frame_while_the_stream_is_open(form, coding, pieces):
    reader, found = FrameReader(form), []
    with anyio.fail_after(30):
        async with served(form, coding) as (url, seen), aclosing(pieces(url)) as body:
            async for data in body:
                found += reader.feed(data)
                assert seen.is_set() or found in ([], STREAM[:1])
                if found:
                    seen.set()
    reader.close()
    assert found == STREAM
