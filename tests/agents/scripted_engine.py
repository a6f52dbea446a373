"""A real llama.cpp server whose words are written beforehand: ids, cache, template and stream are its own.

The server runs a model of one layer (`cut_model.py`) with the template of a family that agents use. Before it stands a
relay that gives each generation a grammar which allows one text: what the script says for this prompt. How that text is
cut into ids is the model's choice, and seldom the tokenizer's. Everything else passes unchanged.
"""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from leaf_sdk.vocab import TokenMap

Script = Callable[[str], str]
"""Gives what the model says behind a prompt, as its family writes it."""

_PROGRAM: Final = "gateway.engine.embedded.child_process"
_CONTEXT: Final = 131_072
_CACHE_MIB: Final = 8192
_PASSED: Final = ("content-type", "authorization")
_FORCED: Final = ("grammar", "grammar_lazy", "grammar_triggers", "json_schema")


@dataclass(slots=True)
class ScriptedEngine:
    """It runs at `url`."""

    url: str
    prompts: list[str] = field(default_factory=list[str])
    """The prompts of its generations, as texts."""


@contextmanager
def scripted_engine(model: Path, template: Path, token_map: TokenMap, script: Script) -> Iterator[ScriptedEngine]:
    """Run one. `token_map`: the model's, by which prompts are read."""
    with _server(model, template) as server, ThreadingHTTPServer(("127.0.0.1", 0), _Relay) as relay:
        relay.daemon_threads = True
        engine = ScriptedEngine(f"http://127.0.0.1:{relay.server_port}")
        relay.server, relay.token_map, relay.script, relay.engine = server, token_map, script, engine  # type: ignore[attr-defined]
        thread = threading.Thread(target=relay.serve_forever, daemon=True)
        thread.start()
        try:
            yield engine
        finally:
            relay.shutdown()
            thread.join()


def only(text: str) -> str:
    """A grammar (GBNF) that allows one text."""
    return f"root ::= {json.dumps(text)}"


@contextmanager
def _server(model: Path, template: Path) -> Iterator[str]:
    """Give host and port of a real server."""
    settings = {"model": str(model), "template": template.read_text(encoding="utf-8"), "context": _CONTEXT}
    # One layer is too little work for two threads, and on busy cores each would wait for the other.
    settings |= {"host": "127.0.0.1", "port": 0, "slots": 2, "threads": 1, "cache_mib": _CACHE_MIB}
    command = [sys.executable, "-m", _PROGRAM, json.dumps(settings)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdout is not None
        try:
            yield urlsplit(child.stdout.readline().strip()).netloc
        finally:
            child.kill()


class _Relay(BaseHTTPRequestHandler):
    """One connection of the gateway, and one to the server behind it."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        super().setup()
        self.behind = HTTPConnection(self.server.server, timeout=300)  # type: ignore[attr-defined]

    def handle(self) -> None:
        with suppress(ConnectionError):  # a gateway that ends does not say goodbye
            super().handle()

    def finish(self) -> None:
        self.behind.close()
        super().finish()

    def do_GET(self) -> None:
        self._pass_on(b"")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self._pass_on(self._written(body) if self.path == "/completion" else body)

    def _written(self, body: bytes) -> bytes:
        asked: dict[str, Any] = json.loads(body)
        site: Any = self.server
        prompt = site.token_map.decode(asked["prompt"])
        site.engine.prompts.append(prompt)
        asked = {name: value for name, value in asked.items() if name not in _FORCED}
        return json.dumps({**asked, "grammar": only(site.script(prompt)), "temperature": 0}).encode()

    def _pass_on(self, body: bytes) -> None:
        headers = {name: self.headers[name] for name in _PASSED if name in self.headers}
        self.behind.request(self.command, self.path, body or None, headers)
        answer = self.behind.getresponse()
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers.get("content-type", "application/json"))
        if answer.headers.get("content-length") is not None:
            told = answer.read()
            self.send_header("content-length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        try:
            self._stream(answer)
        except OSError:
            self.close_connection = True  # the gateway has left: so do we

    def _stream(self, answer: HTTPResponse) -> None:
        while part := answer.read1(65536):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        """Say nothing."""
