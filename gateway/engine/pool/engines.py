"""The engines of a configuration as one pool: each is started, proven and watched separately.

Turns `[engine]` or `[engines.NAME]` into routes and a pool over them, and keeps all of them running. An engine that
fails closes only its own route.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf

import anyio

from gateway.config import GatewayConfig
from gateway.engine.embedded.engine_process import divided
from gateway.engine.pool.pool import EnginePool, PoolMetrics
from gateway.engine.start.maps import MapSet
from gateway.engine.start.readiness import EngineRoute
from gateway.errors import ConfigError
from gateway.observe.backend_metrics import SlotFileMetrics
from gateway.observe.logs import get_logger

Changed = Callable[[str, bool, str], object]
"""Called whenever an engine comes up or goes down, with its name, whether it is up, and the reason if it is not."""

log = get_logger("engine.pool")


class Engines:
    """The routes of one gateway, and the pool over them."""

    def __init__(
        self,
        config: GatewayConfig,
        changed: Changed,
        *,
        metrics: Callable[[], PoolMetrics],
        files: Callable[[], SlotFileMetrics],
    ) -> None:
        """Start nothing. Raises `ConfigError`, as `EngineRoute` does.

        Args:
            config: the gateway's settings.
            changed: called whenever an engine comes up or goes down.
            metrics: returns what counts answers by engine; called later.
            files: the same for slot files.
        """
        self._changed = changed
        members = config.members
        beside = sum(each.kind == "embedded" for each in members.values())
        maps = MapSet()
        self.routes: dict[str, EngineRoute] = {}
        for name, settings in members.items():
            route = EngineRoute(
                *(config, partial(self._report, name), files),
                name=name,
                settings=divided(settings, beside),
                known=maps if config.engines else None,
            )
            maps.update(route.maps)
            self.routes[name] = route
        first = next(iter(self.routes.values()))
        aliases = {name: settings.aliases for name, settings in members.items()}
        self.pool = EnginePool(
            self.routes, maps=maps if config.engines else first.maps, metrics=metrics, aliases=aliases
        )

    def _report(self, name: str, up: bool, reason: str) -> None:
        if up:
            self.pool.maps.update(self.routes[name].maps)
        self._changed(name, up, reason)

    @asynccontextmanager
    async def running(self, start_wait: float = inf) -> AsyncGenerator[EnginePool]:
        """Keep all engines up while the context lasts.

        When it is entered, the first attempt to start each is over, or has taken more than `start_wait` seconds. Raises
        `ConfigError` when the settings of the only engine, or of all engines, can't work.
        """
        if len(self.routes) == 1:
            (route,) = self.routes.values()
            async with route.running(start_wait):
                yield self.pool
            return
        refused: list[ConfigError] = []
        stopping = anyio.Event()
        async with anyio.create_task_group() as tasks:
            attempts = [anyio.Event() for _ in self.routes]
            for (name, route), attempted in zip(self.routes.items(), attempts, strict=True):
                tasks.start_soon(_keep, name, route, start_wait, attempted, stopping, refused)
            for attempted in attempts:
                await attempted.wait()
            if len(refused) < len(self.routes):
                yield self.pool
            stopping.set()
        if len(refused) == len(self.routes):
            raise refused[0]


async def _keep(
    name: str,
    route: EngineRoute,
    start_wait: float,
    attempted: anyio.Event,
    stopping: anyio.Event,
    refused: list[ConfigError],
) -> None:
    try:
        async with route.running(start_wait):
            attempted.set()
            await stopping.wait()
    except ConfigError as error:
        log.error("an engine is not used: its settings are wrong", engine=name, reason=error.message)
        refused.append(error)
        attempted.set()
