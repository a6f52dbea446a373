"""The engine as a tokenizer: connections that it closed, and answers that are none."""

import json
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from leaf_sdk.errors import MapUnreachable
from leaf_sdk.fetch.engine import EngineTokenizer

Server = Callable[[list[bytes]], str]
GOOD = b'{"tokens":[1,2]}'


def answer(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.fixture
def serving() -> Iterator[Server]:
    """A server that gives each connection one answer, and then closes it without a word."""
    threads: list[threading.Thread] = []

    def start(answers: list[bytes]) -> str:
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with listener:
                for each in answers:
                    connection, _ = listener.accept()
                    with connection, connection.makefile("rb") as reader:
                        length = 0
                        while (line := reader.readline().lower()) != b"\r\n":
                            length = int(line.split(b":")[1]) if line.startswith(b"content-length:") else length
                        json.loads(reader.read(length))
                        connection.sendall(each)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    for thread in threads:
        thread.join(10)


def test_connection_that_the_engine_closed_while_it_rested_is_opened_again(serving: Server) -> None:
    with EngineTokenizer(serving([answer(GOOD), answer(GOOD)])) as engine:
        assert engine.ordinary("a") == [1, 2]
        assert engine.specials("a") == [1, 2]


def test_engine_that_closes_every_connection_is_named(serving: Server) -> None:
    with EngineTokenizer(serving([b"", b""])) as engine, pytest.raises(MapUnreachable, match=r"127\.0\.0\.1"):
        engine.ordinary("a")


@pytest.mark.parametrize("body", [b"{}", b'{"tokens":["a"]}', b"no JSON"])
def test_answer_that_holds_no_ids_is_refused(serving: Server, body: bytes) -> None:
    with EngineTokenizer(serving([answer(body)])) as engine, pytest.raises(MapUnreachable, match="engine"):
        engine.ordinary("a")
