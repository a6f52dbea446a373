"""A shared store as a process: the one in memory, or the real Redis where `SHARED_STORE=redis` asks for it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.processes import free_port

REAL = os.environ.get("SHARED_STORE") == "redis"
ROOT = Path(__file__).parents[2]


class StoreProcess:
    """A process that says when it is ready, and can be killed, started again and frozen."""

    def __init__(self, command: Sequence[str]) -> None:
        """Nothing runs yet."""
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._process = subprocess.Popen(
            self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert any("eady" in line for line in self._process.stdout)

    def freeze(self) -> None:
        """It keeps its connections, and says nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class Store(StoreProcess):
    """One port, on which a store runs or not; it begins empty each time."""

    def __init__(self, *flags: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        memory = [sys.executable, "-m", "tests.standins.redis_in_memory", str(self.port)]
        real = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", *flags]
        super().__init__(real if REAL else memory)


@contextmanager
def running_store(*flags: str) -> Iterator[Store]:
    """One that runs while the context lasts."""
    store = Store(*flags)
    try:
        store.start()
        yield store
    finally:
        store.kill()
