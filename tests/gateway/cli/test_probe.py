"""`codec-gateway health`, and the module that containers call in its place."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import exit_codes, probe
from gateway.cli.app import build_app
from gateway.cli.probe import ProbeResult, admin_url, ask
from tests.cases import each_of


@contextmanager
def answering(status: int, body: bytes) -> Iterator[tuple[str, list[str]]]:
    """A server that always answers so, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            """Stay silent."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def test_ready_gateway_is_zero_and_asked_for_readiness() -> None:
    with answering(200, b'{"ready": true, "reasons": []}') as (url, asked):
        assert ask(url) == ProbeResult(0, "ready")
        assert ask(f"{url}/health") == ProbeResult(0, "ready")

    assert asked == ["/healthz/ready", "/health"]


def test_gateway_that_is_not_ready_says_why() -> None:
    with answering(503, json.dumps({"reasons": ["engine: away", "draining"]}).encode()) as (url, _):
        assert ask(url) == ProbeResult(1, "not ready: engine: away; draining")


@each_of("status", [200, 404, 502])
@each_of("body", [b"", b"[]", b"null", b'{"reasons": 3}', b"\xff", b"<!doctype html><p>x</p>"])
def test_answer_of_another_service_is_no_readiness_and_is_not_shown(status: int, body: bytes) -> None:
    with answering(status, body) as (url, _):
        answer = ask(url)

    assert answer.code == exit_codes.UNREACHABLE
    assert answer.words == f"what answers at {url!r} (HTTP status {status}) is no gateway's admin port"


def test_other_path_is_judged_by_its_status_alone() -> None:
    with answering(502, b"<p>") as (url, _):
        assert ask(f"{url}/health") == ProbeResult(1, "not ready: status 502")


def test_nobody_there_is_unreachable() -> None:
    with answering(200, b"") as (url, _):
        pass

    answer = ask(url)

    assert answer.code == exit_codes.UNREACHABLE
    assert answer.words.startswith(f"nothing answers at {url!r}: ")


def test_error_without_words_is_named_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(*_: object) -> None:
        raise ConnectionAbortedError

    monkeypatch.setattr("http.client.HTTPConnection.request", lost)

    assert ask("http://127.0.0.1:1").words == "nothing answers at 'http://127.0.0.1:1': ConnectionAbortedError"


@pytest.mark.parametrize("url", ["127.0.0.1:8601", "https://gateway.example", "http://", "http://h:99999", "ftp://h"])
def test_text_that_is_no_http_address_is_a_setting_that_is_wrong(url: str) -> None:
    assert ask(url).code == exit_codes.CONFIG


def test_address_follows_the_variables_of_the_admin_port() -> None:
    assert admin_url({}) == "http://127.0.0.1:8601"
    assert admin_url({"CODEC_GATEWAY_SERVE__ADMIN_HOST": "0.0.0.0"}) == "http://127.0.0.1:8601"
    assert (
        admin_url({"CODEC_GATEWAY_SERVE__ADMIN_HOST": "::", "CODEC_GATEWAY_SERVE__ADMIN_PORT": "9"}) == "http://[::1]:9"
    )


def test_its_exit_codes_are_those_of_every_command() -> None:
    private = (probe._OK, probe._FAILED, probe._CONFIG, probe._UNREACHABLE)

    assert private == (exit_codes.OK, exit_codes.FAILED, exit_codes.CONFIG, exit_codes.UNREACHABLE)


def test_module_prints_one_line_and_loads_nothing_but_the_standard_library() -> None:
    with answering(503, b'{"reasons": ["line\\nfeed"]}') as (url, _):
        code = "import sys; from gateway.cli.probe import main; code = main(sys.argv[1:], {}); print(*sys.modules)"
        command = [sys.executable, "-c", f"{code}; sys.exit(code)", url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == exit_codes.FAILED
    assert done.stderr == "not ready: line\\nfeed\n"
    assert {"pydantic", "typer", "rich", "starlette", "asyncio", "structlog"} & set(done.stdout.split()) == set()


def test_module_asks_the_admin_port_of_its_environment() -> None:
    with answering(200, b'{"reasons": []}') as (url, asked):
        environment = {**os.environ, "CODEC_GATEWAY_SERVE__ADMIN_PORT": url.rpartition(":")[2]}
        command = [sys.executable, "-m", "gateway.cli.probe"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stdout, asked) == (0, "ready\n", ["/healthz/ready"])


def test_command_finds_the_admin_port_in_the_configuration(tmp_path: Path) -> None:
    with answering(503, b'{"reasons": ["engine: starting"]}') as (url, asked):
        file = tmp_path / "codec-gateway.toml"
        file.write_text(f"[serve]\nadmin_port = {url.rpartition(':')[2]}\n")
        result = CliRunner().invoke(build_app(), ["health", "--config", str(file)])

    assert (result.exit_code, result.stderr) == (exit_codes.FAILED, "not ready: engine: starting\n")
    assert asked == ["/healthz/ready"]
