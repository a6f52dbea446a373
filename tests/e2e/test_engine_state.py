"""An engine that can't be used is named with its reason wherever somebody looks: the log, `status`, `/healthz/ready`,
the console, and the answers to requests."""

import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from gateway.cli.app import run
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.testing import tiny_map_bytes

pytestmark = pytest.mark.engine

MESSAGES = [{"role": "user", "content": "Say hello."}]
CHAT = {"model": "any", "messages": MESSAGES, "max_tokens": 2}


@dataclass(frozen=True)
class Told:
    """What a person reads about an engine that is not up."""

    log: str
    status: str
    ready: str
    console: str
    chat: str
    messages: str
    completions: str


@dataclass
class Looked:
    """One running gateway, looked at."""

    log: Any
    url: str
    admin: str
    http: httpx2.Client
    """The browser of an operator."""

    def told(self) -> Told:
        """All places at once; the log's last reason is the one that holds."""
        refused = [self._post(path, body) for path, body in REQUESTS]
        entries = self.log.events("engine down") or self.log.events("engine starting")
        return Told(entries[-1]["reason"], self._status(), self._ready(), self.console(), *refused)

    def _status(self) -> str:
        with redirect_stdout(StringIO()) as shown:
            assert run(["status", "--admin", self.admin]) == 1
        return next(line for line in shown.getvalue().splitlines() if line.startswith("engine "))

    def _ready(self) -> str:
        answer = httpx2.get(f"{self.admin}/healthz/ready", timeout=60)
        assert answer.status_code == 503
        report = answer.json()
        assert report["engine"]["state"] in ("starting", "down")
        return report["reasons"][0]

    def _post(self, path: str, body: Mapping[str, Any]) -> str:
        answer = httpx2.post(f"{self.url}{path}", json=body, timeout=60)
        assert answer.status_code >= 500, answer.text
        return answer.json()["error"]["message"]

    def console(self) -> str:
        """The text of a page of the console; its address signs in once."""
        page = self.http.get("/console/servers")
        if "/console/sign-in" in str(page.url):
            key = urlsplit(self.log.events("sign in to the console")[-1]["url"]).query.removeprefix("key=")
            page = self.http.post("/console/sign-in", data={"key": key})
        assert page.status_code == 200
        return unescape(page.text)


REQUESTS = (
    ("/v1/chat/completions", CHAT),
    ("/v1/messages", CHAT),
    ("/v1/completions", {"model": "any", "prompt": "a", "max_tokens": 1}),
)


@contextmanager
def looked_at(launched: AbstractContextManager[tuple[Any, Any]]) -> Iterator[Looked]:
    """A gateway that is up, whatever its engine does."""
    with launched as (process, log):
        ready = log.wait_for("gateway ready")
        with operator(ready["admin"]) as http:
            yield Looked(log, ready["url"], ready["admin"], http)
        process.terminate()
        process.wait(30)


def operator(admin: str) -> httpx2.Client:
    return httpx2.Client(base_url=admin, headers={"origin": admin}, follow_redirects=True, timeout=60)


def assert_same_everywhere(told: Told, *words: str) -> None:
    """Every place shows the whole reason of the log, which holds these words."""
    for each in words:
        assert each in told.log
    assert not any(mark in told.log.lower() for mark in ("<html", "<!doctype", "<title"))
    for place in (told.status, told.ready, told.console, told.chat, told.messages, told.completions):
        assert _without_what_is_free(told.log) in _without_what_is_free(place), place


def _without_what_is_free(text: str) -> str:
    """The engine is started again and again meanwhile, and each time another amount of memory is free."""
    return re.sub(r"[\d.]+ GB (?=are free)", "", text)


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address on which nothing listens, and nobody else will."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@contextmanager
def served(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """A server in this process that answers every GET and POST this way."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answer(self)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes, kind: str = "application/json") -> None:
    handler.send_response(status)
    handler.send_header("content-type", kind)
    handler.send_header("content-length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def page_server(body: bytes, status: int = 404) -> Iterator[str]:
    with served(lambda handler: reply(handler, status, body, "text/html")) as url:
        yield url


@contextmanager
def ollama() -> Iterator[str]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        pages = {
            "/": (200, b"Ollama is running"),
            "/v1/models": (200, json.dumps({"object": "list", "data": [{"id": "m", "owned_by": "library"}]}).encode()),
        }
        reply(handler, *pages.get(handler.path, (404, b"404 page not found")))

    with served(answer) as url:
        yield url


@contextmanager
def silent_server() -> Iterator[str]:
    """Accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def other_protocol() -> Iterator[str]:
    """Answers like a mail server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            while listener.fileno() != -1:
                # A client that hangs up at once, or the end of the test.
                with suppress(OSError):
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1000)
                        connection.sendall(b"500 unknown command\r\n")

        threading.Thread(target=greet, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def directory_listing() -> Iterator[str]:
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().split()[5]}"
        finally:
            process.kill()


def test_nothing_that_listens(launch, closed_port: str) -> None:
    with looked_at(launch({}, "--engine", closed_port)) as gateway:
        told = gateway.told()
        ready = gateway.log.events("gateway ready")[0]

    assert_same_everywhere(told, f"nothing listens at '{closed_port}'", "start the llama.cpp or vLLM server")
    assert ready["engine"] == f"down ({told.log})"
    assert told.status == f"engine url, down: {told.log}"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (directory_listing, "a web application or a proxy answers at"),
        (lambda: page_server(b"<!DOCTYPE html><title>Jupyter Server</title>"), "a Jupyter server answers at"),
        (lambda: page_server(b"<html><title>502 Bad Gateway</title>nginx", 502), "a proxy answers 502 at"),
        (lambda: page_server(b"<html>welcome", 200), "a web application or a proxy answers at"),
        (ollama, "Ollama answers at"),
        (silent_server, "accepts connections, but did not answer within 4 s"),
        (other_protocol, "does not speak HTTP"),
    ],
    ids=["directory listing", "Jupyter", "proxy", "application", "Ollama", "silent", "mail"],
)
def test_wrong_service(launch, server: Callable[[], AbstractContextManager[str]], words: str) -> None:
    with server() as url, looked_at(launch({}, "--engine", f"{url}/v1/")) as gateway:
        gateway.log.wait_for("engine down")
        told = gateway.told()

    assert_same_everywhere(told, words, f"'{url}'")
    assert "engine.url (--engine)" in told.log or "run llama-server" in told.log


def test_gateway_in_place_of_an_engine(launch, start_gateway) -> None:
    other = start_gateway({})
    with looked_at(launch({}, "--engine", other.url)) as gateway:
        gateway.log.wait_for("engine down")
        told = gateway.told()

    assert_same_everywhere(told, "a codec-gateway answers at", "set engine.url (--engine) to the engine behind it")


def test_wrong_model(launch, engine_url: str, tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    path.write_bytes(tiny_map_bytes())
    with looked_at(launch({}, "--engine", engine_url, "--map", str(path))) as gateway:
        gateway.log.wait_for("engine down")
        told = gateway.told()

    assert_same_everywhere(told, "does not fit the tokenizer of the engine's model", "--map auto")


def test_engine_that_loads_its_model_is_starting_and_then_ready(launch, engine_url: str, tells_time) -> None:
    loaded = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if not loaded.is_set():
            error = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
            reply(handler, 503, json.dumps(error).encode())
            return
        sent = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        got = http.request(handler.command, handler.path, content=sent)
        reply(handler, got.status_code, got.content)

    with httpx2.Client(base_url=engine_url, timeout=60) as http, served(answer) as url:
        flags = ["--engine", url, "--model", str(packaged_model())]
        with looked_at(launch({"time": tells_time}, *flags)) as gateway:
            ready = gateway.log.events("gateway ready")[0]
            told = gateway.told()
            loaded.set()
            gateway.log.wait_for("engine ready")
            report = httpx2.get(f"{gateway.admin}/healthz/ready", timeout=60).json()

            assert ready["engine"] == "starting"
            assert ready["tools"] == 1
            assert_same_everywhere(told, f"the engine at '{url}' is loading its model")
            assert "starting: " in told.status
            assert not gateway.log.events("engine down")
            assert (report["ready"], report["engine"]) == (True, {"state": "ready"})
            assert "Engine ready: one_layer" in gateway.console()


def test_truncated_model_is_named_and_used_once_it_is_whole(launch, tmp_path: Path) -> None:
    whole = packaged_model().read_bytes()
    model = tmp_path / "model.gguf"
    model.write_bytes(whole[:-1000])
    with looked_at(launch({}, "--engine", "embedded", "--model", str(model))) as gateway:
        told = gateway.told()
        model.write_bytes(whole)
        ready = gateway.log.wait_for("engine ready")
        downs = gateway.log.events("engine down")

    assert_same_everywhere(told, "model 'model.gguf' is truncated", "tries again when the model's file changes")
    assert len(downs) == 1
    assert ready["failed_attempts"] == 1


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>", "is not a GGUF file: it is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_file_that_is_no_model(launch, tmp_path: Path, data: bytes, words: str) -> None:
    model = tmp_path / "model.gguf"
    model.write_bytes(data)
    with looked_at(launch({}, "--engine", "embedded", "--model", str(model))) as gateway:
        told = gateway.told()

    assert_same_everywhere(told, "model 'model.gguf' ", words)


@pytest.mark.parametrize(("context", "warns"), [(20_480, True), (16_384, False)])
def test_context_beyond_the_model_s_is_lowered_with_one_warning(launch, context: int, warns: bool) -> None:
    env = {"CODEC_GATEWAY_ENGINE__CONTEXT": str(context)}
    with launch({}, "--model", str(packaged_model()), env=env) as (_, log):
        ready = log.wait_for("engine ready")
        lowered = log.events(
            "the model has a context of 8192 tokens: each slot gets that, not 10240 "
            "(engine.context 20480 / engine.slots 2)"
        )

    assert ready["context"] == 8192
    assert len(lowered) == int(warns)


def test_too_little_memory(launch) -> None:
    env = {"CODEC_GATEWAY_ENGINE__CONTEXT": "400000"}
    launched = launch({}, "--engine", "embedded", env=env)
    with launched as (process, log):
        resource.prlimit(process.pid, resource.RLIMIT_AS, (2_500_000_000, 2_500_000_000))
        ready = log.wait_for("gateway ready")
        log.wait_for("engine down")
        with operator(ready["admin"]) as http:
            told = Looked(log, ready["url"], ready["admin"], http).told()

    assert_same_everywhere(told, "ran out of memory while it was starting", "insufficient memory", "engine.context")


def test_killed_engine_is_named_and_started_again(launch) -> None:
    with looked_at(launch({}, "--engine", "embedded")) as gateway:
        up = gateway.log.wait_for("engine ready")
        os.kill(up["pid"], signal.SIGKILL)
        down = gateway.log.wait_for("engine down")
        again = gateway.log.wait_for("engine ready", count=2)

    assert "was killed by signal 9: somebody ended it, or " in down["reason"]
    assert "with this context needs about " in down["reason"]
    assert again["failed_attempts"] >= 1


def test_engine_whose_machine_is_busy_elsewhere_is_not_killed(launch) -> None:
    with looked_at(launch({}, "--engine", "embedded")) as gateway:
        up = gateway.log.wait_for("engine ready")
        os.kill(up["pid"], signal.SIGSTOP)
        # Longer than all health checks together, and shorter than `engine.idle_timeout`.
        with pytest.raises(AssertionError, match="no 'engine down'"):
            gateway.log.wait_for("engine down", seconds=20)
        os.kill(up["pid"], signal.SIGCONT)
        with httpx2.Client(base_url=gateway.url, timeout=60) as http:
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
            assert http.post("/v1/chat/completions", json=body).status_code == 200


def test_engine_that_asks_for_a_key(launch, tmp_path: Path) -> None:
    settings = {
        "model": str(packaged_model()),
        "host": "127.0.0.1",
        "port": 0,
        "context": 512,
        "slots": 1,
        "threads": 1,
    }
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", json.dumps(settings)]
    env = {**os.environ, "CODEC_ENGINE_KEY": "the-key-of-this-engine"}
    with subprocess.Popen(
        command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as engine:
        assert engine.stdout is not None
        url = engine.stdout.readline().decode().strip()
        with looked_at(launch({}, "--engine", url, "--model", str(packaged_model()))) as gateway:
            reason = gateway.log.wait_for("engine down")["reason"]
        engine.kill()

    assert "(401: " in reason
    assert "set engine.api_key" in reason


@pytest.mark.parametrize(("flag", "setting"), [("--port", "--port"), ("--admin-port", "--admin-port")])
def test_port_that_is_taken_is_named_with_its_flag(launch, flag: str, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with launch({}, flag, str(port)) as (process, log):
            assert process.wait(60) == 3
            text = log.text

    assert f"can't listen on 127.0.0.1:{port} (Address already in use)" in text
    assert setting in text


def test_port_of_the_engine_command_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "gateway", "engine", "--port", str(port)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    assert done.returncode == 4
    assert f"the embedded engine can't listen on 127.0.0.1:{port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_engine_that_is_the_gateway_itself_is_refused(launch) -> None:
    with launch({}, "--port", "8600", "--engine", "http://localhost:8600/v1") as (process, log):
        assert process.wait(60) == 3
        assert "which is this gateway's own port" in log.text
