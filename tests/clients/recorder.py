"""A pass-through between a client and a server of `/v1`, which keeps what both said.

Clients drop the fields that they don't know. It turns HTTP requests into the same ones to the server, and answers,
whole or streamed, back as they are. What is added to requests (a seed, that ids are wanted) the caller says. It judges
nothing.
"""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import urlsplit

Request = dict[str, Any]
_HEADERS: Final = ("authorization", "content-type", "accept")
"""What the server is told of the client's headers."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its answer."""

    request: Request
    """As the client sent it."""
    status: int
    answer: dict[str, Any]
    """As the server sent it; of a stream, what its chunks come to (`joined`)."""


@dataclass(slots=True)
class Recording:
    """What has passed so far."""

    url: str
    """Where the client finds the server."""
    exchanges: list[Exchange] = field(default_factory=list[Exchange])


@contextmanager
def recording(server: str, sent: Callable[[Request], Request]) -> Iterator[Recording]:
    """Stand before a server (its address, without `/v1`). `sent`: gives what it gets for what a client asks."""
    host = urlsplit(server).netloc
    kept = Recording("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            connection = HTTPConnection(host, timeout=300)
            headers = {name: self.headers[name] for name in _HEADERS if name in self.headers}
            connection.request("POST", self.path, json.dumps(sent(request)).encode(), headers)
            answer = connection.getresponse()
            told = answer.read()
            connection.close()
            kind = answer.headers.get("content-type", "")
            kept.exchanges.append(Exchange(request, answer.status, _read(told, kind)))
            self.send_response(answer.status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, *_: object) -> None:
            """Say nothing: the recording is what is said."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as passing:
        kept.url = f"http://127.0.0.1:{passing.server_port}/v1"
        thread = threading.Thread(target=passing.serve_forever, daemon=True)
        thread.start()
        try:
            yield kept
        finally:
            passing.shutdown()
            thread.join()


def _read(told: bytes, kind: str) -> dict[str, Any]:
    if "event-stream" not in kind:
        return json.loads(told)
    lines = (line.removeprefix(b"data: ") for line in told.splitlines() if line.startswith(b"data: "))
    return joined(json.loads(line) for line in lines if line != b"[DONE]")


def joined(chunks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Give what the chunks of a stream come to, in the shape of a whole answer, as far as the judgement reads it."""
    answer: dict[str, Any] = {"choices": [{"message": {"tool_calls": []}, "token_ids": []}], "codec": {"spliced": []}}
    first = answer["choices"][0]
    calls = first["message"]["tool_calls"]
    for chunk in chunks:
        answer |= {key: chunk[key] for key in ("prompt_token_ids", "usage", "timings", "error") if chunk.get(key)}
        codec = chunk.get("codec", {})
        answer["codec"] |= {key: codec[key] for key in ("turns", "tool_results", "prompt") if key in codec}
        if "turns" not in codec:
            # The last chunk tells all of them again.
            answer["codec"]["spliced"] += codec.get("spliced", ())
        for choice in chunk.get("choices", ()):
            first["token_ids"] += choice.get("token_ids", ())
            calls += [call for call in choice["delta"].get("tool_calls") or () if call.get("id")]
            first["finish_reason"] = choice.get("finish_reason") or first.get("finish_reason")
    return answer
