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


def test_token_of_the_state_folder_is_masked_in_the_log_of_serve(tmp_path: Path, environment: dict[str, str]) -> None:
    made = subprocess.run(command("token"), cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    secret = made.stdout.strip()
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"talker": talker(secret)}}))
    serve = command("serve", "--config", "mcp.json", "--host", "0.0.0.0", "--port", "0", "--admin-port", "0")

    with subprocess.Popen(serve, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as gateway:
        assert gateway.stderr is not None
        line = next(line for line in gateway.stderr if "I saw" in line)
        gateway.kill()

    assert json.loads(line)["line"] == "I saw ****"


def test_key_of_the_engine_is_masked_in_the_log_of_stdio(tmp_path: Path, environment: dict[str, str]) -> None:
    own = f'[engine]\nkind = "url"\nurl = "http://127.0.0.1:9"\napi_key = "{SECRET}"\n'
    (tmp_path / "codec-gateway.toml").write_text(own)
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"talker": talker(SECRET)}}))

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
