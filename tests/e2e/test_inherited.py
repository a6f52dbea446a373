"""What the gateway was given by who started it stays with it: no process that it starts inherits a part."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SHUFFLE = """
import os, sys
given = [int(number) for number in sys.argv[1].split(",")]
for place, number in enumerate(given):
    os.dup2(number, 200 + place)
for place, _ in enumerate(given):
    os.dup2(200 + place, 3 + place)
    os.close(200 + place)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.executable, [sys.executable, "-m", "gateway", *sys.argv[2:]])
"""


def opened_by(pid: int) -> set[str]:
    """What a process has open from descriptor 3 up: `socket:[12]`, `pipe:[13]`, paths."""
    folder = Path(f"/proc/{pid}/fd")
    return {os.readlink(folder / name) for name in os.listdir(folder) if int(name) > 2}  # noqa: PTH208, PTH115


def below(pid: int) -> set[int]:
    """The processes that a process has started, and theirs."""
    found = {
        int(child) for path in Path(f"/proc/{pid}/task").iterdir() for child in (path / "children").read_text().split()
    }
    return found.union(*map(below, found))


@pytest.fixture
def activated(tmp_path: Path, tells_time: dict[str, Any]) -> Iterator[tuple[int, set[str]]]:
    """A gateway that was given systemd's sockets and a lock file: its pid, and what these are called."""
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"time": tells_time}}))
    with (
        (tmp_path / "lock").open("w") as lock,
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_server(("127.0.0.1", 0)) as admin,
    ):
        given = [listener.fileno(), admin.fileno(), lock.fileno()]
        names = {os.readlink(f"/proc/self/fd/{number}") for number in given}  # noqa: PTH115
        command = [sys.executable, "-c", SHUFFLE, ",".join(map(str, given)), "serve", "--config", "mcp.json"]
        environment = {**os.environ, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "faces:admin"}
        with subprocess.Popen(
            [*command, "--engine", "embedded"],
            cwd=tmp_path,
            env=environment,
            pass_fds=given,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            ready = next(json.loads(line) for line in process.stderr if '"gateway ready"' in line)
            assert ready["url"].endswith(f":{listener.getsockname()[1]}")
            yield process.pid, names
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=240)


@pytest.mark.engine
def test_no_child_inherits_sockets_files_or_variables_that_were_passed_to_the_gateway(
    activated: tuple[int, set[str]],
) -> None:
    pid, given = activated
    children = below(pid)

    assert given <= opened_by(pid)
    # The server, the watchdog and the engine.
    assert len(children) >= 3
    for child in children:
        assert opened_by(child) & given == set()
        assert b"LISTEN_" not in Path(f"/proc/{child}/environ").read_bytes()
