"""Redis on a host of its own, which can be killed, started again with what it had or without, and frozen."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.replicas.network import Host, host
from tests.standins.stores import StoreProcess

_PORT = 6379


class Redis(StoreProcess):
    """One that writes down what it is told, before it answers."""

    def __init__(self, at: Host, folder: Path) -> None:
        """Nothing runs yet."""
        self._folder = folder
        self.settings = f'[shared]\nurl = "redis://{at.address}:{_PORT}/0"\n'
        """Of whoever shares it."""
        flags = ["--bind", at.address, "--protected-mode", "no", "--save", "", "--appendonly", "yes"]
        super().__init__(at.command(["redis-server", *flags, "--dir", str(folder)]))

    def start(self, *, empty: bool = False) -> None:
        """Start it with what it has written, or `empty`, and wait until it is ready."""
        if empty:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(exist_ok=True)
        super().start()


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
