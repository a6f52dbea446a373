"""Real servers for the proxy: small scripts that each do one thing wrong, and what a test needs to watch them."""

import sys
from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from gateway.config.model import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.proxy import Proxy

SERVERS = Path(__file__).parent / "servers"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where servers write what the test shall know."""
    return tmp_path / "notes"


@pytest.fixture
def upstream(notes: Path) -> Callable[..., UpstreamConfig]:
    """Makes the configuration of one script under servers/."""

    def make(script: str, *args: str, name: str = "up") -> UpstreamConfig:
        command = (str(SERVERS / f"{script}.py"), *args)
        return UpstreamConfig(name=name, command=sys.executable, args=command, env={"NOTES": str(notes)})

    return make


@pytest.fixture
def proxy_of() -> Callable[..., Proxy]:
    """Makes a proxy that restarts without long pauses."""

    def make(*upstreams: UpstreamConfig, metrics: Metrics | None = None, **limits: float) -> Proxy:
        quick = {"start_timeout": 20.0, "restart_backoff": 0.01, "restart_backoff_max": 0.05, **limits}
        config = GatewayConfig(upstreams=upstreams, prefix="always", limits=LimitsConfig(**quick))  # pyright: ignore[reportArgumentType]
        return Proxy(config, metrics or Metrics())

    return make


@pytest.fixture
def until() -> Callable[..., object]:
    """Waits for a condition that changes only when the proxy's tools do."""

    async def wait(proxy: Proxy, condition: Callable[[], bool]) -> None:
        changed = [anyio.Event()]

        def note() -> None:
            changed[0].set()

        proxy.on_tools_changed(note)
        with anyio.fail_after(20):
            while not condition():
                await changed[0].wait()
                changed[0] = anyio.Event()

    return wait


@pytest.fixture
def noted_pids(notes: Path) -> Callable[[], list[int]]:
    """The processes that said who they are."""

    def read() -> list[int]:
        return [int(line.split()[1]) for line in notes.read_text().splitlines() if line.startswith("pid ")]

    return read


@pytest.fixture
def noted_words(notes: Path) -> Callable[[], list[str]]:
    """What servers wrote down."""
    return lambda: notes.read_text().split()


@pytest.fixture
def descriptors() -> Callable[[], int]:
    """How many descriptors this process holds open; nothing to compare where /proc is missing."""
    folder = Path("/proc/self/fd")
    return lambda: len(list(folder.iterdir())) if folder.exists() else 0
