"""Engines that follow a script, where the services would start real ones."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.config.gateway_config import EngineConfig, GatewayConfig
from gateway.engine.pool.pool import EnginePool
from gateway.errors import EngineUnavailable
from tests.gateway.serve.generation.three_apis import Engine, Route

URL = EngineConfig(kind="url", url="http://127.0.0.1:9")


class ScriptedRoute(Route):
    """The route to an engine that comes and goes as the test says."""

    away: str | None = "not there yet"

    def __init__(self, context: int) -> None:
        super().__init__(Engine("hermes"), context)

    def ready(self) -> Any:
        if self.away is not None:
            raise EngineUnavailable(self.away)
        return super().ready()


class ScriptedEngines:
    """In the place of `Engines`."""

    context = 8000

    def __init__(self, config: GatewayConfig, changed: Callable[[str, bool, str], object], **more: Any) -> None:
        self.routes = {name: ScriptedRoute(self.context) for name in config.members}
        self.pool = EnginePool(self.routes, metrics=more["metrics"])
        self.waits: list[float] = []
        self._changed = changed

    def set(self, name: str, away: str | None) -> None:
        """Let an engine come up, or go away for this reason."""
        self.routes[name].away = away
        self._changed(name, away is None, away or "")

    @asynccontextmanager
    async def running(self, start_wait: float) -> AsyncGenerator[EnginePool]:
        self.waits.append(start_wait)
        yield self.pool


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> list[ScriptedEngines]:
    """Those of each gateway that is started."""
    made: list[ScriptedEngines] = []

    def make(*given: Any, **named: Any) -> ScriptedEngines:
        made.append(ScriptedEngines(*given, **named))
        return made[-1]

    monkeypatch.setattr("gateway.app.services.Engines", make)
    return made
