"""Commands at an admin port where something else answers: without end, or with what no JSON reader takes."""

import socket
import threading
from collections.abc import Iterator

import pytest

from gateway.cli import exit_codes
from gateway.cli.app import run

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
DEEP = b"[" * 200_000
COMMANDS = ("status", "why", "console")


@pytest.fixture(params=["endless", "deep"])
def hostile(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that answers every connection in its way."""

    def answer(client: socket.socket) -> None:
        client.recv(65536)
        if request.param == "deep":
            client.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(DEEP) + DEEP)
            return
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            client.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")

    def serve(listener: socket.socket) -> None:
        while True:
            client, _ = listener.accept()
            with client:
                try:
                    answer(client)
                except OSError:
                    continue

    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_until_closed, args=(serve, listener), daemon=True).start()
    with listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def _until_closed(serve, listener: socket.socket) -> None:
    try:
        serve(listener)
    except OSError:
        return


@pytest.mark.parametrize("command", COMMANDS)
def test_answer_without_end_or_reader_is_one_sentence(
    command: str, hostile: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.cli.status._MOST", 1 << 20)
    code = run([command, "--admin", hostile])

    printed = capsys.readouterr()
    assert code == exit_codes.UNREACHABLE
    assert len(printed.err.strip().splitlines()) == 1
    assert hostile in printed.err
