"""A router in front of engines can tell which requests are of one conversation, from whichever gateway they come."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any
from urllib.parse import urlsplit

import anyio
import openai
import pytest
from anyio.abc import SocketAttribute, SocketStream, TaskStatus
from anyio.from_thread import start_blocking_portal

from gateway.engine.embedded.packaged_model import packaged_model
from tests.e2e.conftest import RunningGateway

pytestmark = pytest.mark.engine

NAMED = re.compile(rb"^x-session-id: ([0-9a-f]{32})\r$", re.MULTILINE)


class Listening:
    """Passes connections on to an engine, and keeps what is said to it."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._engine = (parts.hostname or "", parts.port or 0)
        self._said: list[bytearray] = []
        self.url = ""

    def sessions(self) -> list[bytes]:
        """By which generations were asked for since the last look."""
        found = [name for said in self._said for name in NAMED.findall(said)]
        for said in self._said:
            said.clear()
        return found

    async def listen(self, *, task_status: TaskStatus[None]) -> None:
        async with await anyio.create_tcp_listener(local_host="127.0.0.1") as server:
            self.url = f"http://127.0.0.1:{server.extra(SocketAttribute.local_port)}"
            task_status.started()
            await server.serve(self._serve)

    async def _serve(self, client: SocketStream) -> None:
        said = bytearray()
        self._said.append(said)
        async with client, await anyio.connect_tcp(*self._engine) as engine, anyio.create_task_group() as tasks:
            tasks.start_soon(_pass_on, engine, client, bytearray())
            await _pass_on(client, engine, said)
            tasks.cancel_scope.cancel()


async def _pass_on(source: SocketStream, sink: SocketStream, said: bytearray) -> None:
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
        while True:
            data = await source.receive()
            said += data
            await sink.send(data)


@pytest.fixture
def engine(vllm_url: str) -> Iterator[Listening]:
    listening = Listening(vllm_url)
    with start_blocking_portal() as portal:
        running, _ = portal.start_task(listening.listen)
        yield listening
        running.cancel()


def test_requests_of_one_conversation_name_one_session_from_every_gateway(
    engine: Listening, start_gateway: Callable[..., RunningGateway]
) -> None:
    flags = ["--engine", engine.url, "--model", str(packaged_model())]
    first = [{"role": "user", "content": "What is a lighthouse?"}]
    seen: list[list[bytes]] = []

    def ask(chat: openai.OpenAI, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        told = chat.chat.completions.create(model="any", messages=messages, max_tokens=8, temperature=0)
        seen.append(engine.sessions())
        return [*messages, {"role": "assistant", "content": told.choices[0].message.content}]

    with ExitStack() as stack:
        one, other = [stack.enter_context(start_gateway({}, *flags).client()) for _ in range(2)]
        again = {"role": "user", "content": "And a buoy?"}
        lived = ask(one, first)
        ask(one, [*lived, again])
        ask(other, [*lived, again])
        ask(one, [{"role": "user", "content": "What is a harbour?"}])
        one.completions.create(model="any", prompt="Once upon a time", max_tokens=4)
        continued = engine.sessions()

    assert [len(names) for names in seen] == [1, 1, 1, 1]
    assert seen[0] == seen[1] == seen[2] != seen[3]
    assert len(continued) == 1
    assert continued[0] not in {names[0] for names in seen}
