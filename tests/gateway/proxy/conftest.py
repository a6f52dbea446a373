"""Real servers for the proxy: small scripts that each do one thing wrong, and what a test needs to watch them."""

import json
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config.gateway_config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from gateway.proxy.bolt_on import KnownMaps, NoMaps
from gateway.proxy.caller import ANYBODY, ClientSession, Principal
from gateway.proxy.proxy import Proxy
from gateway.proxy.upstream.server_lists import ListCache
from tests.standins.loop_clock import LoopClock

SERVERS = Path(__file__).parent / "servers"


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> LoopClock:
    """The time of the event loop, which passes when the test says so."""
    return LoopClock(monkeypatch)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """Where servers write what the test shall know."""
    return tmp_path / "notes"


@pytest.fixture
def upstream(notes: Path) -> Callable[..., UpstreamConfig]:
    """Makes the configuration of one script under servers/."""

    def make(script: str, *args: str, name: str = "up", **settings: Any) -> UpstreamConfig:
        command = (str(SERVERS / f"{script}.py"), *args)
        return UpstreamConfig(name=name, command=sys.executable, args=command, env={"NOTES": str(notes)}, **settings)

    return make


@pytest.fixture
def proxy_of() -> Callable[..., Proxy]:
    """Makes a proxy that restarts without long pauses."""

    def make(
        *upstreams: UpstreamConfig,
        metrics: Metrics | None = None,
        maps: KnownMaps | None = None,
        list_cache: ListCache | None = None,
        **limits: float,
    ) -> Proxy:
        quick = {"start_timeout": 20.0, "restart_backoff": 0.01, "restart_backoff_max": 0.05, **limits}
        config = GatewayConfig(upstreams=upstreams, prefix="always", limits=LimitsConfig(**quick))  # pyright: ignore[reportArgumentType]
        return Proxy(config, metrics or Metrics(), maps=maps or NoMaps(), list_cache=list_cache)

    return make


@pytest.fixture
def until() -> Callable[..., object]:
    """Waits for a condition that changes only when the proxy's tools do."""

    async def wait(proxy: Proxy, condition: Callable[[], bool]) -> None:
        changed = [anyio.Event()]

        def note() -> None:
            changed[0].set()

        proxy.on_tools_changed(note)
        with anyio.fail_after(60):
            while not condition():
                await changed[0].wait()
                changed[0] = anyio.Event()

    return wait


@pytest.fixture
def noted_pids(notes: Path) -> Callable[[], list[int]]:
    """The processes that said who they are."""

    def read() -> list[int]:
        # One that was ended before it could say anything wrote no file.
        lines = notes.read_text().splitlines() if notes.exists() else []
        return [int(line.split()[1]) for line in lines if line.startswith("pid ")]

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


@pytest.fixture
def noted(notes: Path) -> Callable[[], list[str]]:
    """The lines that servers wrote down."""
    return lambda: notes.read_text().splitlines() if notes.exists() else []


@pytest.fixture
def soon() -> Callable[[Callable[[], object]], Awaitable[None]]:
    """Waits for what has no event to wait for: a file, a process, a breaker."""

    async def wait(condition: Callable[[], object]) -> None:
        with anyio.fail_after(60):
            while not condition():  # noqa: ASYNC110
                await anyio.sleep(0.01)

    return wait


@pytest.fixture
def until_noted(
    noted: Callable[[], list[str]], soon: Callable[[Callable[[], object]], Awaitable[None]]
) -> Callable[..., Awaitable[None]]:
    """Waits until servers wrote down `count` lines that begin so."""

    async def wait(words: str, count: int = 1) -> None:
        await soon(lambda: sum(line.startswith(words) for line in noted()) >= count)

    return wait


class Client:
    """A client: what it announced, what it heard, how it answers. Its own session, unless it is modern."""

    def __init__(self, *, modern: bool = False, principal: Principal = ANYBODY, **capabilities: Any) -> None:
        self.modern = modern
        self.principal = principal
        self.capabilities: dict[str, Any] = capabilities
        self.log_level: str | None = None
        self.session: ClientSession | None = None if modern else self
        self.times_heard = 0
        self.idle_since: float | None = None
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.was_asked: list[str] = []
        self.answers: dict[str, dict[str, Any]] = {}
        self.changed = anyio.Event()

    def notified(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))
        self.changed.set()
        self.changed = anyio.Event()

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.was_asked.append(method)
        self.changed.set()
        self.changed = anyio.Event()
        if method not in self.answers:
            raise RpcError({"code": -1, "message": "no"})
        return self.answers[method]

    async def until(self, condition: Callable[[], object]) -> None:
        with anyio.fail_after(60):
            while not condition():
                await self.changed.wait()


@pytest.fixture
def client() -> type[Client]:
    """Makes clients."""
    return Client


@pytest.fixture
def obeying(upstream: Callable[..., UpstreamConfig]) -> Callable[..., UpstreamConfig]:
    """Makes the configuration of a server that does what calls say; `offer` as in servers/obeys.py."""

    def make(name: str = "up", offer: dict[str, Any] | None = None, **settings: Any) -> UpstreamConfig:
        return replace(upstream("obeys", json.dumps(offer or {}), name=name), **settings)

    return make


@pytest.fixture
def call() -> Callable[..., Awaitable[Any]]:
    """Calls a tool as a client does, and gives the structured content of what comes back, or the error's text."""

    async def ask(proxy: Proxy, client: Client, name: str = "up__do", **orders: Any) -> Any:
        with anyio.fail_after(30):
            result = await proxy.handle("tools/call", {"name": name, "arguments": orders}, client)
        return result["structuredContent"] if "structuredContent" in result else result["content"][0]["text"]

    return ask


@pytest.fixture
def answered(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[dict[str, Any]]]:
    """The first answer to a client whose calls have little time: its session is there before the clock matters."""

    async def ask(proxy: Proxy, client: Client, name: str = "up__do") -> dict[str, Any]:
        with anyio.fail_after(60):
            while not isinstance(answer := await call(proxy, client, name), dict):
                pass
        return answer

    return ask


@pytest.fixture
def starts(noted: Callable[[], list[str]]) -> Callable[[], int]:
    """How many processes there were."""
    return lambda: sum(line.startswith("pid ") for line in noted())
