"""What commands write to their log: whatever a server prints, no secret that the gateway knows."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TALKER = "import sys; sys.stderr.write('I saw ' + {secret!r} + chr(10))"
SECRET = "engine-5555"
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "gateway", *args]


def talker(secret: str) -> dict[str, Any]:
    """A server that prints the secret, which nothing in its own entry gives away as one, and leaves."""
    return {"command": sys.executable, "args": ["-c", TALKER.format(secret=secret)]}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_token_of_the_state_folder_is_masked_in_the_log_of_serve(
    tmp_path: Path, environment: dict[str, str], workers: str
) -> None:
    made = subprocess.run(command("token"), cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    secret = made.stdout.strip()
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"talker": talker(secret)}}))
    ports = ("--host", "0.0.0.0", "--port", "0", "--admin-port", "0")
    serve = command("serve", "--config", "mcp.json", *ports, "--workers", workers)

    with subprocess.Popen(serve, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as gateway:
        assert gateway.stderr is not None
        line = next(line for line in gateway.stderr if "I saw" in line)
        gateway.terminate()

    assert json.loads(line)["line"] == "I saw ****"


def servers_beside_an_engine(folder: Path) -> None:
    """The configuration of a server that prints the engine's key."""
    own = f'[engine]\nkind = "url"\nurl = "http://127.0.0.1:9"\napi_key = "{SECRET}"\n'
    (folder / "codec-gateway.toml").write_text(own)
    (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"talker": talker(SECRET)}}))


@pytest.mark.parametrize("words", [("doctor",), ("call", "tell")])
def test_key_of_the_engine_is_masked_in_all_that_a_command_writes(
    tmp_path: Path, environment: dict[str, str], words: tuple[str, ...]
) -> None:
    servers_beside_an_engine(tmp_path)

    whole = command(*words, "--config", "mcp.json", "--log-level", "debug")
    ran = subprocess.run(whole, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    assert "I saw ****" in ran.stderr
    assert SECRET not in ran.stdout + ran.stderr


def test_key_of_the_engine_is_masked_in_the_log_of_stdio(tmp_path: Path, environment: dict[str, str]) -> None:
    servers_beside_an_engine(tmp_path)
    stdio = command("stdio", "--config", "mcp.json")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(stdio, cwd=tmp_path, env=environment, text=True, **pipes) as gateway:
        assert gateway.stdin is not None
        assert gateway.stderr is not None
        gateway.stdin.write(json.dumps(INITIALIZE) + "\n")
        gateway.stdin.flush()
        line = next(line for line in gateway.stderr if "I saw" in line)
        gateway.kill()

    assert json.loads(line)["line"] == "I saw ****"
