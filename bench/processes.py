"""Programs under test: started in a group of their own, awaited until they listen, ended with all their children.

Turns a command into a running process and a log file. It knows nothing of MCP but the line with which our gateway says
that it is ready. `toolchain.py` says where programs are.
"""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

START_TIME: Final = 60.0
"""Seconds that a program may take until it listens."""
_GRACE: Final = 15.0
_PAUSE: Final = 0.02
_LOWEST, _HIGHEST = 10_000, 16_000
"""Ports to choose from; from the second on some systems give them to whoever asks for any, Linux from 32,768 on."""


@dataclass(frozen=True, slots=True)
class Running:
    """A program: its process and its log file."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The id of the process that was started; its children have their own."""
        return self.process.pid

    def said(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def fail(self, why: str) -> SystemExit:
        """Return the error that ends a run, with the end of the program's log."""
        return SystemExit(f"{self.name}: {why}\n{self.said()}")


@dataclass(frozen=True, slots=True)
class Gateway:
    """A ready `codec-gateway serve`: where its ports are."""

    running: Running
    url: str
    admin: str


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens on, and that nobody gets by chance before they are used."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(ports) < count:
            port = _LOWEST + secrets.randbelow(_HIGHEST - _LOWEST)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
    return ports


def free_port() -> int:
    """Return one free port."""
    return free_ports(1)[0]


@contextmanager
def running(
    name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Generator[Running]:
    """Run a program in the background, in a session of its own, and end it and its children."""
    with tempfile.TemporaryDirectory(prefix="codec-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as writer:
            process = subprocess.Popen(
                command,
                env=env,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=writer,
                start_new_session=True,
            )
        try:
            yield Running(name, process, log)
        finally:
            _end(process)


def wait_for_port(program: Running, port: int) -> None:
    """Wait until the program accepts connections.

    Raises:
        SystemExit: it has ended, or does not listen in time.
    """
    deadline = time.monotonic() + START_TIME
    while time.monotonic() < deadline:
        if program.process.poll() is not None:
            raise program.fail(f"ended with {program.process.returncode} before it listened on port {port}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(_PAUSE)
    raise program.fail(f"does not listen on port {port} after {START_TIME:g} s")


@contextmanager
def serving_gateway(
    folder: Path,
    config: Mapping[str, Any],
    *,
    settings: str = "",
    code: Path | None = None,
    under: Sequence[str] = (),
) -> Generator[Gateway]:
    """Run `codec-gateway serve` with this `mcpServers` JSON, on ports of its own choice.

    Args:
        folder: where its files go; each gateway needs its own.
        config: servers by name, as in a client's file.
        settings: the text of the `codec-gateway.toml` beside it.
        code: where the packages that it runs are, if not in this environment.
        under: the command of a program that runs it.
    """
    path = write_config(folder, config, settings)
    env = gateway_environment(code)
    words = ("-m", "gateway", "serve", "--config", str(path), "--port", "0", "--admin-port", "0")
    command = [*under, sys.executable, *words]
    with running("codec-gateway", command, env=env, cwd=folder) as program:
        ready = _await_ready(program)
        yield Gateway(program, ready["url"], ready["admin"])


def gateway_environment(code: Path | None = None) -> dict[str, str]:
    """Return the environment of a gateway: this process's, without what would configure it.

    Args:
        code: where the packages are that it runs, if not in this environment.
    """
    # The gateway refuses to run as a server of itself, so the mark of an outer gateway must not reach it.
    env = {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")}
    return env if code is None else {**env, "PYTHONPATH": str(code)}


def write_config(folder: Path, config: Mapping[str, Any], settings: str = "") -> Path:
    """Write both files of a gateway's configuration; return the path of the JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mcp.json"
    path.write_text(json.dumps({"mcpServers": dict(config)}), encoding="utf-8")
    (folder / "codec-gateway.toml").write_text(settings, encoding="utf-8")
    return path


def _await_ready(program: Running) -> dict[str, str]:
    deadline = time.monotonic() + START_TIME
    while time.monotonic() < deadline:
        text = program.log.read_text(encoding="utf-8", errors="replace")
        for line in text.splitlines():
            if line.startswith("{") and '"gateway ready"' in line:
                told = cast("dict[str, str]", json.loads(line))
                if told.get("engine") != "starting" or '"engine ready"' in text:
                    return told
        if program.process.poll() is not None:
            raise program.fail(f"ended with {program.process.returncode} before it was ready")
        time.sleep(_PAUSE)
    raise program.fail(f"is not ready after {START_TIME:g} s")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the program to end; then kill what is left of its group, which nobody else would end."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
