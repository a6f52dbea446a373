"""Commands at a port where another program's web server listens: one sentence, none of its markup."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gateway.cli import exit_codes
from gateway.cli.app import run

PAGE = b"<!doctype html><html><head><title>Jupyter</title></head><body><h1>Login</h1></body></html>"


@pytest.fixture(params=[200, 404, 502])
def other(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that answers everything with a page."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(request.param)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(PAGE)))
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_words: object) -> None:
            """Stay silent."""

    for method in ("GET", "POST", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.answer)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    "words",
    [
        ["status", "--admin", "{url}"],
        ["why", "--admin", "{url}"],
        ["console", "--admin", "{url}"],
        ["health", "{url}"],
        ["call", "x", "--url", "{url}/mcp"],
        ["bench", "{url}", "--requests", "1"],
    ],
    ids=lambda words: words[0],
)
def test_page_of_another_service_is_one_sentence_without_markup(
    words: list[str], other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run([word.format(url=other) for word in words])

    printed = capsys.readouterr()
    assert code == exit_codes.UNREACHABLE
    assert printed.out == ""
    assert "<" not in printed.err
    assert len(printed.err.strip().splitlines()) == 1
