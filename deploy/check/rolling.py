"""A rolling restart of two gateways behind Debian's nginx, under 20 calls a second.

Each gateway is replaced by a new one that is ready before the old one is told to end: nginx's list is rewritten in the
same place and reloaded. Clients of 2026-07-28 make one call per request and never retry: none may fail. Sessions of
2025-11-25 end with their gateway: one of the two replacements interrupts each of them, and otherwise they lose no call.
(While nginx reloads, both of its lists are served: a session that restarts just then may land on the old gateway and
have to restart once more.)
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.processes import free_port
from deploy.check.load import WORKERS, Load
from deploy.check.outcome import ROOT, Failed, need, note


class Gateway:
    """One gateway process on free ports."""

    def __init__(self, folder: Path) -> None:
        self.port, self.admin = free_port(), free_port()
        config = folder / f"{self.port}.json"
        config.write_text(json.dumps({"mcpServers": {"time": {"command": _beside("codec-plain-time")}}}))
        ports = ["--port", str(self.port), "--admin-port", str(self.admin)]
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(config), *ports]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")}
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.DEVNULL)

    def wait(self) -> None:
        """Wait until it is ready and its server is up."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=2) as response:
                    if b'codec_upstream_up{server="time"} 1.0' in response.read():
                        return
            except OSError:
                pass
            time.sleep(0.05)
        raise Failed("a gateway did not become ready within 60 s")

    def end(self) -> int:
        """Send TERM; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


class Nginx:
    """Debian's nginx with our example configuration, as a process of its own."""

    def __init__(self, folder: Path, gateways: list[Gateway]) -> None:
        self.port = free_port()
        self._folder = folder
        self._program = need("nginx", "nginx-light")
        own = (ROOT / "deploy" / "nginx" / "codec-gateway.conf").read_text(encoding="utf-8")
        (folder / "codec-gateway.conf").write_text(own.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}"))
        (folder / "nginx.conf").write_text(
            f"daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;\n"
            f"events {{}} http {{ access_log off;\n"
            f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
            f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
            "include codec-gateway.conf; }\n"
        )
        self._list(gateways)
        self.process = subprocess.Popen([self._program, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"])
        _until(lambda: _answers(self.port), "nginx")

    def replace(self, gateways: list[Gateway]) -> None:
        """Load a new list, and wait until no worker uses the old one."""
        before = self._workers()
        self._list(gateways)
        self.process.send_signal(signal.SIGHUP)
        _until(lambda: bool(self._workers()) and not self._workers() & before, "nginx' new worker")

    def end(self) -> None:
        """Stop at once."""
        self.process.terminate()
        self.process.wait(20)

    def _list(self, gateways: list[Gateway]) -> None:
        servers = "".join(f"server 127.0.0.1:{gateway.port};\n" for gateway in gateways)
        (self._folder / "codec-gateway-servers.conf").write_text(servers)

    def _workers(self) -> set[str]:
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return set(path.read_text(encoding="ascii").split())


def check_rolling_restart() -> str:
    """Replace both gateways under load; returns the counts. Raises `Failed` with the first faults."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        gateways = [_started(stack, folder) for _ in range(2)]
        for gateway in gateways:
            gateway.wait()
        nginx = Nginx(folder, gateways)
        stack.callback(nginx.end)
        load = Load(nginx.port)
        stack.callback(load.end)
        time.sleep(2)
        for place in range(2):
            old, gateways[place] = gateways[place], _started(stack, folder)
            gateways[place].wait()
            nginx.replace(gateways)
            if code := old.end():
                raise Failed(f"a gateway ended with {code}")
            time.sleep(2)
            load.replaced += 1
        load.end()
    return _judged(load)


def _judged(load: Load) -> str:
    words = ", ".join(f"{count} {name}" for name, count in sorted(load.counts.items()))
    if load.faults:
        raise Failed("\n".join([words, *load.faults[:5]]))
    if sorted(number for number, _ in load.interrupted) != list(range(WORKERS)):
        raise Failed(f"each session should have been interrupted once: {sorted(load.interrupted)}; {words}")
    note("rolling", "calls", dict(sorted(load.counts.items())))
    return words


def _started(stack: ExitStack, folder: Path) -> Gateway:
    gateway = Gateway(folder)
    stack.callback(gateway.process.wait)
    stack.callback(gateway.process.kill)
    return gateway


def _beside(command: str) -> str:
    return str(Path(sys.executable).with_name(command))


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _until(done: Any, what: str) -> None:
    deadline = time.monotonic() + 20
    while not done():
        if time.monotonic() > deadline:
            raise Failed(f"{what} did not come up within 20 s")
        time.sleep(0.02)
