"""Redis on a host of its own, which can be killed, started again with what it had or without, and frozen."""

import shutil
import signal
import socket
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.replicas.network import Host, host, wait_for

_PORT = 6379


class Redis:
    """One that writes down what it is told, before it answers."""

    def __init__(self, at: Host, folder: Path) -> None:
        """Nothing runs yet."""
        self._at = at
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> str:
        """Of whoever shares it."""
        return f'[shared]\nurl = "redis://{self._at.address}:{_PORT}/0"\n'

    def start(self, *, empty: bool = False) -> None:
        """Start it with what it has written, and wait until it listens."""
        if empty:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(exist_ok=True)
        flags = ["--bind", self._at.address, "--protected-mode", "no", "--save", "", "--appendonly", "yes"]
        command = ["redis-server", *flags, "--dir", str(self._folder)]
        self._process = subprocess.Popen(self._at.command(command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        wait_for("redis listens", self._listens)

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Its connections stay, and it says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _listens(self) -> bool:
        try:
            with socket.create_connection((self._at.address, _PORT), timeout=1):
                return True
        except OSError:
            return False


@contextmanager
def redis(folder: Path) -> Generator[Redis]:
    """One that runs while the context lasts."""
    with host("redis", 31) as at:
        made = Redis(at, folder / "redis")
        try:
            made.start()
            yield made
        finally:
            made.kill()
