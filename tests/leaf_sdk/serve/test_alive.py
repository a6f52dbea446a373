"""`python -m leaf_sdk.serve.alive`: what containers ask a leaf server."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from leaf_sdk.serve.alive import answers, main


@contextmanager
def answering(status: int) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [200, 401, 404, 406])
def test_server_that_answers_at_all_is_alive(status: int) -> None:
    with answering(status) as port:
        assert answers("127.0.0.1", port) is None
        assert main([f"127.0.0.1:{port}"]) == 0


def test_server_that_says_it_is_broken_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(500) as port:
        assert main([f"127.0.0.1:{port}"]) == 1

    assert capsys.readouterr().err == f"127.0.0.1:{port} answers with status 500\n"


def test_nobody_there_is_not_alive(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(200) as port:
        pass

    assert main([f"127.0.0.1:{port}"]) == 1
    assert "nothing answers at 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["8300"], ["h:0"], ["h:x"], ["h:70000"], ["h:1", "h:2"]])
def test_anything_but_one_address_is_a_mistake(arguments: list[str]) -> None:
    assert main(arguments) == 2


def test_module_loads_no_server() -> None:
    code = "import sys, leaf_sdk.serve.alive; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert {"mcp", "uvicorn", "tokenizers", "pydantic", "asyncio"} & set(loaded) == set()
