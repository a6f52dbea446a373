"""Hosts as network namespaces: a bridge that all are on, and a second network for what replicas say to each other.

The second one is a switch in user space (`switch.py`), which can delay, lose and cut off. Everything is in namespaces
of this process's own, which vanish with it, however it ends: `in_own_namespaces` starts the program in them.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import which

HUB = "10.77.0.1"
CLIENTS = tuple(f"10.77.0.{number}" for number in range(101, 113))
"""Where clients are: all at one address, or a few at one each."""
_INSIDE = "CODEC_CHECK_INSIDE"
_PRIVATE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")


def missing() -> list[str]:
    """What a check on hosts of its own needs, and is not here."""
    programs = [name for name in ("unshare", "mount", "ip", "haproxy", "nginx", "redis-server") if which(name) is None]
    others = {"root": os.geteuid() == 0, "/dev/net/tun": Path("/dev/net/tun").exists()}
    return [*programs, *(name for name, there in others.items() if not there)]


def in_own_namespaces(module: str) -> int | None:
    """Run `module` with our arguments in namespaces of its own; gives its exit code, None where that is done."""
    if os.environ.get(_INSIDE) != "1":
        command = [*_PRIVATE, sys.executable, "-m", module, *sys.argv[1:]]
        return subprocess.run(command, env={**os.environ, _INSIDE: "1"}, check=False).returncode
    _ip("link", "set", "lo", "up")
    Path("/run/netns").mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run/netns"], check=True)
    _ip("link", "add", "hub", "type", "bridge")
    for address in (HUB, *CLIENTS):
        _ip("address", "add", f"{address}/24", "dev", "hub")
    _ip("link", "set", "hub", "up")
    return None


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@dataclass(frozen=True)
class Host:
    """A machine: a namespace with an address that all reach."""

    name: str
    number: int

    @property
    def address(self) -> str:
        return f"10.77.0.{self.number}"

    @property
    def inner(self) -> str:
        """Its address among the replicas."""
        return f"10.78.0.{self.number}"

    def command(self, words: Sequence[str]) -> list[str]:
        """A command as it is run there."""
        return ["ip", "netns", "exec", self.name, *words]


@contextmanager
def host(name: str, number: int) -> Generator[Host]:
    """One that is there for as long as the context lasts."""
    made = Host(name, number)
    _ip("netns", "add", name)
    _ip("link", "add", f"{name}-out", "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", f"{name}-out", "master", "hub", "up")
    _ip("-n", name, "link", "set", "lo", "up")
    _ip("-n", name, "address", "add", f"{made.address}/24", "dev", "eth0")
    _ip("-n", name, "link", "set", "eth0", "up")
    try:
        yield made
    finally:
        # The kernel takes its time to end a namespace, and what is in it.
        _ip("link", "delete", f"{name}-out")
        _ip("netns", "delete", name)


class Switch:
    """The replicas' own network."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        """It carries everything at once, whole."""
        words = [f"{each.name}:{each.number}" for each in hosts]
        command = [sys.executable, "-m", "tests.replicas.switch", *words]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said()
        for each in hosts:
            _ip("link", "set", f"tap-{each.name}", "netns", each.name)
            _ip("-n", each.name, "address", "add", f"{each.inner}/24", "dev", f"tap-{each.name}")
            _ip(
                "-n", each.name, "link", "set", f"tap-{each.name}", "address", f"02:00:00:00:00:{each.number:02x}", "up"
            )

    def set(self, *, delay: float = 0.0, loss: float = 0.0, cuts: Iterable[tuple[str, str]] = ()) -> None:
        """From now on: seconds of delay, part of the frames that is lost, and who does not reach whom, both ways."""
        self._tell({"delay": delay, "loss": loss, "cuts": [list(cut) for cut in cuts]})

    def _tell(self, order: dict[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._said()

    def _said(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "done\n", "the switch has ended"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def switched(hosts: Sequence[Host]) -> Generator[Switch]:
    """A network between these hosts."""
    switch = Switch(hosts)
    try:
        yield switch
    finally:
        switch.end()


def wait_for(what: str, holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until a condition holds. Raises SystemExit."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"{what}: not within {seconds:g} s")
        time.sleep(0.02)
