"""The engines of a configuration as one pool: each is started, proven and watched by itself.

Turns `[engine]` or `[engines.NAME]` into routes, the pool over them, and the life of all. An engine that fails closes
its own route and no other's.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio

from gateway.config import GatewayConfig
from gateway.engine.embedded import divided
from gateway.engine.maps import MapSet
from gateway.engine.pool import EnginePool, PoolMetrics
from gateway.engine.readiness import EngineRoute
from gateway.errors import ConfigError
from gateway.observe.logs import get_logger
from gateway.observe.slot_file_metrics import SlotFileMetrics

Changed = Callable[[str, bool, str], object]
"""Told whenever an engine comes up or goes away: its name, whether it is up, and if not why."""

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
            changed: hears of each engine.
            metrics: what counts answers by engine; asked for later.
            files: the same for slot files.
        """
        self._changed = changed
        members = config.members
        beside = sum(each.kind == "embedded" for each in members.values())
        maps = MapSet()
        self.routes: dict[str, EngineRoute] = {}
        for name, settings in members.items():
            route = EngineRoute(
                *(config, partial(self._told, name), files),
                name=name,
                settings=divided(settings, beside),
                known=maps if config.engines else None,
            )
            maps.learn(route.maps)
            self.routes[name] = route
        first = next(iter(self.routes.values()))
        aliases = {name: settings.aliases for name, settings in members.items()}
        self.pool = EnginePool(
            self.routes, maps=maps if config.engines else first.maps, metrics=metrics, aliases=aliases
        )

    def _told(self, name: str, up: bool, reason: str) -> None:
        if up:
            self.pool.maps.learn(self.routes[name].maps)
        self._changed(name, up, reason)

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[EnginePool]:
        """Keep all up for as long as the context lasts; each has had its first attempt when it is entered.

        Raises `ConfigError` when the settings of the only one, or of all, can't work.
        """
        if len(self.routes) == 1:
            (route,) = self.routes.values()
            async with route.running():
                yield self.pool
            return
        refused: list[ConfigError] = []
        stopping = anyio.Event()
        async with anyio.create_task_group() as tasks:
            attempts = [anyio.Event() for _ in self.routes]
            for (name, route), attempted in zip(self.routes.items(), attempts, strict=True):
                tasks.start_soon(_keep, name, route, attempted, stopping, refused)
            for attempted in attempts:
                await attempted.wait()
            if len(refused) < len(self.routes):
                yield self.pool
            stopping.set()
        if len(refused) == len(self.routes):
            raise refused[0]


async def _keep(
    name: str, route: EngineRoute, attempted: anyio.Event, stopping: anyio.Event, refused: list[ConfigError]
) -> None:
    try:
        async with route.running():
            attempted.set()
            await stopping.wait()
    except ConfigError as error:
        log.error("an engine is left out: its settings can't work", engine=name, reason=error.message)
        refused.append(error)
        attempted.set()
