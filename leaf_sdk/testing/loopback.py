"""A real HTTP server on this machine for the length of a test, to test fetching against, misbehaviour included.

The caller's function answers each request with the standard library's handler, so it can break off, send very slowly,
or contradict its own headers. Binds to a free port of 127.0.0.1. Used by tests, never by the SDK itself.
"""

import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[[BaseHTTPRequestHandler], object]


@contextmanager
def serving(answer: Answer) -> Generator[tuple[str, list[str]]]:
    """Serve GET requests with `answer`; yields the server's address and the list of paths that were asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked.append(self.path)
            answer(self)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def send(handler: BaseHTTPRequestHandler, data: bytes, status: int = 200, **headers: str) -> None:
    """Send one whole answer; headers override the computed length."""
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(data)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)
