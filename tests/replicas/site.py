"""Three servers, up to four replicas and a balancer without stickiness, each on a host of its own."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from gateway.config.replicas import ReplicasConfig
from gateway.replicas.sealed_records import ReplicaKeys
from tests.replicas.balancers import Balancer, haproxy
from tests.replicas.ledger import Loss
from tests.replicas.network import Host, Switch, host, switched, wait_for
from tests.replicas.store import Redis, redis

TOKEN = "a-token-for-the-check-of-replicas-0"
INNER_PORT = 8602
_FACES, _ADMIN, _SERVER = 8600, 8601, 8700
SETTINGS = """
[serve]
host = "{address}"
port = 8600
admin_host = "{address}"
admin_port = 8601
allowed_hosts = [{hosts}]
keys = "{folder}/keys.toml"

[engine]
{engine}

[replicas]
address = "{inner}"
port = 8602
key_file = "{key}"
{shared}
"""


@dataclass
class Replica:
    """One place where a gateway may run."""

    host: Host
    folder: Path
    process: subprocess.Popen[bytes] | None = None
    told: int = 0
    """Bytes of its log before this start."""

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def url(self) -> str:
        return f"http://{self.host.address}:{_FACES}"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        """Start it, with its settings as they are in its folder."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")}
        command = [sys.executable, "-m", "gateway", "serve", "--config", str(self.folder / "mcp.json")]
        self.told = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.host.command(command),
                env={**env, "CODEC_GATEWAY_TOKEN": TOKEN},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def is_ready(self) -> bool:
        """Whether it takes requests. Raises SystemExit where it has ended."""
        assert self.process is not None
        if self.process.poll() is not None:
            raise SystemExit(f"{self.name} ended with {self.process.returncode}:\n{self.said()[-4000:]}")
        try:
            with urllib.request.urlopen(f"http://{self.host.address}:{_ADMIN}/healthz/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def said(self) -> str:
        """The log of this start."""
        return self.log.read_bytes()[self.told :].decode(errors="replace")

    def events(self, words: str, *, ever: bool = False) -> list[dict[str, Any]]:
        """Entries of the log whose event holds `words`, of this start or of all."""
        text = self.log.read_text(errors="replace") if ever and self.log.exists() else "" if ever else self.said()
        # One that was killed may have left half a line.
        entries = (json.loads(line) for line in text.splitlines() if line[:1] == "{" and line[-1:] == "}")
        return [entry for entry in entries if words in entry["event"]]

    def key(self, name: str, *arguments: str) -> str:
        """A key of somebody, known to all replicas: they share the file."""
        words = ["keys", "add", name, *arguments, "--config", str(self.folder / "mcp.json")]
        command = [sys.executable, "-m", "gateway", *words]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=True).stdout.split()[0]

    def asks_store(self) -> bool:
        """Whether it says that the store which it shares answers."""
        try:
            with urllib.request.urlopen(f"http://{self.host.address}:{_ADMIN}/metrics", timeout=5) as answer:
                return b"\ncodec_shared_up 1" in answer.read()
        except (OSError, HTTPException):
            return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def drain(self) -> int:
        """TERM, and wait for its end; gives the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@dataclass
class Site:
    """What runs, and what happened to it."""

    folder: Path
    replicas: list[Replica]
    switch: Switch
    balancer: Balancer
    key: Path
    store: Redis | None
    losses: list[Loss] = field(default_factory=list[Loss])

    @property
    def url(self) -> str:
        return self.balancer.url

    def owner(self, session: str) -> str | None:
        """The replica in which a session lives, by its sealed name."""
        files = [self.key, *self.folder.glob("key-*")]
        secrets = [ReplicasConfig(key_file=each).read_secrets()[0] for each in files]
        plain = ReplicaKeys(secrets).opened("session", session)
        address = "" if plain is None else plain[40:].decode()
        return next((each.name for each in self.replicas if f"{each.host.inner}:{INNER_PORT}" == address), None)

    def by_name(self, name: str) -> Replica:
        return next(each for each in self.replicas if each.name == name)

    def start(self, *replicas: Replica) -> None:
        """Start them, and wait until they serve and the balancer knows."""
        for each in replicas:
            each.start()
        for each in replicas:
            wait_for(f"{each.name} is ready", each.is_ready)
            wait_for(f"the balancer knows {each.name}", lambda each=each: each.name in self.balancer.up())

    def counts(self) -> dict[int, tuple[int, int]]:
        """How often each call was begun and finished, over all servers."""
        found: dict[int, tuple[int, int]] = {}
        for told in _counted():
            for call, times in told["begun"].items():
                begun, finished = found.get(int(call), (0, 0))
                found[int(call)] = (begun + times, finished + told["finished"].get(call, 0))
        return found

    def finished(self) -> dict[int, float]:
        """When each call was finished."""
        return {int(call): when for told in _counted() for call, when in told["when"].items()}


SERVERS = 3


def _counted() -> Generator[dict[str, dict[str, Any]]]:
    for number in range(SERVERS):
        with urllib.request.urlopen(f"http://10.77.0.{21 + number}:{_SERVER}/counts", timeout=30) as answer:
            yield json.load(answer)


@contextmanager
def site(
    folder: Path,
    count: int,
    *,
    running: int | None = None,
    engine: str = 'kind = "none"',
    shared: bool = False,
    servers: dict[str, Any] | None = None,
    make: Any = haproxy,
) -> Generator[Site]:
    """Places for `count` replicas, of which `running` are started (all), in front of our servers.

    `engine`: text of `[engine]`; `shared`: whether they share Redis; `servers`: others than ours; `make`: the balancer.
    """
    key = folder / "key"
    key.write_text("0123456789abcdef" * 4)
    with ExitStack() as stack:
        hosts = [stack.enter_context(host(f"gw{number}", 11 + number)) for number in range(count)]
        switch = stack.enter_context(switched(hosts))
        at = stack.enter_context(host("lb", 5))
        if servers is None:
            servers = {f"s{number}": {"url": stack.enter_context(_server(folder, number))} for number in range(SERVERS)}
        replicas = [Replica(each, folder / each.name) for each in hosts]
        store = stack.enter_context(redis(folder)) if shared else None
        known = ", ".join(f'"{each.address}"' for each in (at, *hosts))
        for each in replicas:
            settings = {"address": each.host.address, "inner": each.host.inner, "hosts": known}
            each.folder.mkdir()
            (each.folder / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
            text = SETTINGS.format(
                key=key, engine=engine, shared="" if store is None else store.settings, folder=folder, **settings
            )
            (each.folder / "codec-gateway.toml").write_text(text)
        balancer = stack.enter_context(make(folder, at, {each.name: each.host.address for each in replicas}))
        made = Site(folder, replicas, switch, balancer, key, store)
        stack.callback(_end, replicas)
        made.start(*replicas[: count if running is None else running])
        yield made


def _end(replicas: Sequence[Replica]) -> None:
    for each in replicas:
        if each.runs:
            each.kill()


@contextmanager
def _server(folder: Path, number: int) -> Generator[str]:
    with host(f"srv{number}", 21 + number) as at:
        command = [sys.executable, "-m", "tests.replicas.server", f"s{number}", at.address, str(_SERVER)]
        with (folder / f"server{number}.log").open("wb") as log:
            process = subprocess.Popen(at.command(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            wait_for(f"server {number} listens", lambda: _answers(f"http://{at.address}:{_SERVER}/counts"))
            yield f"http://{at.address}:{_SERVER}/mcp"
        finally:
            process.kill()
            process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except OSError:
        return False


def now() -> float:
    """The clock of losses and calls."""
    return time.monotonic()
