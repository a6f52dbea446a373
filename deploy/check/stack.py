"""The `cpu` profile of docker-compose.yml as real containers under podman.

Turns the services of `compose.py` into `podman run` commands and waits for their health as compose would. Images that
only a registry has are left out, except Prometheus: Debian's runs in its place, with the same configuration. Everything
that is made is named after this check and removed with it.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from bench.processes import free_ports
from deploy.check.compose import networks_of, read_compose, started_by
from deploy.check.images import BASE
from deploy.check.outcome import PREFIX, ROOT, Failed, need, run

PROJECT: Final = "codec-deploy-check"
TOKEN: Final = "deploy-check-token"
PORTS: Final = dict(zip(("PORT", "PROMETHEUS_PORT"), map(str, free_ports(2)), strict=True))
SETTINGS: Final = {
    "GATEWAY_IMAGE": f"{PREFIX}/gateway",
    "GATEWAY_EMBEDDED_IMAGE": f"{PREFIX}/gateway-embedded",
    "LEAF_IMAGE": f"{PREFIX}/leaf",
    "CODEC_GATEWAY_TOKEN": TOKEN,
    "ENGINE_THREADS": "1",
    "ENGINE_CONTEXT": "8192",
    **PORTS,
}
SMALL_LIMITS: Final = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
_ABSENT: Final = {"grafana"}
_CONFIG: Final = "./deploy/compose/codec-gateway.toml:"


class Stack:
    """Running containers, by the names of their services."""

    def __init__(self, podman: str, services: Mapping[str, dict[str, Any]], config: Path) -> None:
        self._podman = podman
        self._config = config
        self.services = services
        self.ready_after: dict[str, float] = {}
        """Seconds from a container's start to its health."""

    def command(self, *arguments: str, seconds: float = 60) -> str:
        """Run podman."""
        return run([self._podman, "--runtime", "runc", "--log-level", "fatal", *arguments], seconds=seconds)

    def name(self, service: str) -> str:
        """Return a container's (or network's, or volume's) name."""
        return f"{PROJECT}-{service}"

    def up(self) -> None:
        """Start every service, each when those that it needs are healthy or done."""
        for network in ("front", "engine", "tools"):
            internal = ["--internal"] if network != "front" else []
            self.command("network", "create", *internal, self.name(network))
        for service, settings in self.services.items():
            if service not in _ABSENT:
                self._start(service, settings)

    def _start(self, service: str, settings: dict[str, Any]) -> None:
        began = time.monotonic()
        if settings.get("restart") == "no":
            self.command("run", "--rm", *self._flags(service, settings), seconds=180)
        else:
            self.command("run", "--detach", *self._flags(service, settings))
            self._wait(service)
        self.ready_after[service] = time.monotonic() - began

    def _flags(self, service: str, settings: dict[str, Any]) -> list[str]:
        limits = settings["deploy"]["resources"]["limits"]
        flags = ["--name", self.name(service), *SMALL_LIMITS, "--memory", limits["memory"]]
        flags += ["--read-only"] if settings.get("read_only") else []
        flags += [f"--tmpfs={mount}" for mount in settings.get("tmpfs", [])]
        flags += [f"--cap-drop={name}" for name in settings.get("cap_drop", [])]
        flags += ["--security-opt=no-new-privileges"]
        flags += [f"--env={name}={value}" for name, value in settings.get("environment", {}).items()]
        flags += [f"--publish={port}" for port in settings.get("ports", [])]
        flags += [f"--volume={self._volume(volume)}" for volume in settings.get("volumes", [])]
        flags += self._network_flags(service, settings)
        image, entry = settings["image"], settings.get("entrypoint", [])
        if service == "prometheus":
            image, entry = f"{PREFIX}/{BASE}", ["/usr/bin/prometheus"]
            flags += [f"--volume={need('prometheus', 'prometheus')}:/usr/bin/prometheus:ro", "--user=0"]
        if entry:
            flags += [f"--entrypoint={json.dumps(entry)}"]
        return [*flags, image, *map(str, settings.get("command", []))]

    def _network_flags(self, service: str, settings: dict[str, Any]) -> list[str]:
        if settings.get("network_mode") == "none":
            return ["--network=none"]
        return [
            f"--network={self.name(network)}:alias={',alias='.join([service, *aliases])}"
            for network, aliases in networks_of(settings)
        ]

    def _volume(self, volume: str) -> str:
        if volume.startswith(_CONFIG):
            return f"{self._config}:{volume.removeprefix(_CONFIG)}"
        source, _, rest = volume.partition(":")
        return f"{(ROOT / source).resolve()}:{rest}" if source.startswith((".", "/")) else f"{self.name(source)}:{rest}"

    def _wait(self, service: str) -> None:
        """Run the service's own health check until it passes, as a supervisor would."""
        check = self.services[service]["healthcheck"]["test"][1:]
        if service == "prometheus":
            check = ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9090/-/ready')"]
        last = ""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                self.command("exec", self.name(service), *check, seconds=20)
            except Failed as failure:
                last = str(failure)
                if self.state(service) != "running":
                    break
                time.sleep(0.1)
            else:
                return
        raise Failed(f"{service} did not become healthy: {last}\n{self.log(service)[-2000:]}")

    def state(self, service: str) -> str:
        """Return `running`, `exited` and so on."""
        return self.command("inspect", self.name(service), "--format", "{{.State.Status}}").strip()

    def log(self, service: str) -> str:
        """Return what the container wrote, including standard error."""
        words = [self._podman, "--log-level", "fatal", "logs", self.name(service)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
        return done.stdout + done.stderr

    def memory(self, service: str) -> float:
        """Return the memory of its processes in MB (their proportional set sizes)."""
        pids = self.command("top", self.name(service), "hpid").split()[1:]
        return sum(proportional_kb(pid) for pid in pids) / 1000

    def stop(self, service: str) -> tuple[int, float]:
        """Send TERM and wait; returns the exit code and the seconds that it took."""
        began = time.monotonic()
        self.command("stop", "--time", "20", self.name(service))
        code = self.command("inspect", self.name(service), "--format", "{{.State.ExitCode}}")
        return int(code), time.monotonic() - began

    def down(self) -> None:
        """Remove what this check has made, and nothing else."""
        for service in self.services:
            with suppress(Failed):
                self.command("rm", "--force", "--time", "1", self.name(service))
        for network in ("front", "engine", "tools"):
            with suppress(Failed):
                self.command("network", "rm", "--force", self.name(network))
        for volume in ("models", "state", "prometheus", "grafana"):
            with suppress(Failed):
                self.command("volume", "rm", "--force", self.name(volume))


def proportional_kb(pid: str) -> int:
    """Return the memory of a process in kB, with shared pages divided among those that share them (PSS)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


@contextmanager
def running_stack() -> Generator[Stack]:
    """Run the stack of the `cpu` profile, healthy; it is always removed at the end."""
    podman = need("podman", "podman")
    need("runc", "runc")
    services = started_by(read_compose(ROOT / "docker-compose.yml", SETTINGS), "cpu")
    with tempfile.TemporaryDirectory() as folder:
        stack = Stack(podman, with_plain_tool(services), _config_with_plain_tool(Path(folder)))
        stack.down()
        try:
            stack.up()
            yield stack
        finally:
            stack.down()


def with_plain_tool(services: Mapping[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the services and, before the gateway, a tool without a map, whose texts the shim tokenizes."""
    plain: dict[str, Any] = {**services["time-leaf"], "environment": {}, "volumes": []}
    return {"plain": plain, **services}


def _config_with_plain_tool(folder: Path) -> Path:
    path = folder / "codec-gateway.toml"
    own = (ROOT / "deploy" / "compose" / "codec-gateway.toml").read_text(encoding="utf-8")
    path.write_text(f'{own}\n[upstreams.plain]\nurl = "http://plain:8300/mcp"\n', encoding="utf-8")
    folder.chmod(0o755)
    path.chmod(0o644)
    return path
