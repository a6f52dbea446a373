"""A changed configuration, taken over while the gateway runs.

Looks at the files' state every second (a `stat`, which works on every file system) and hears SIGHUP; reads and checks
everything anew, and only then hands the new configuration to the rooms. A configuration that is wrong changes nothing,
and the log says what is wrong. What can't change in a running process (addresses, engine, maps, limits) is named and
waits for a restart. `run.py` stands above.
"""

import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import anyio

from gateway.config.model import GatewayConfig
from gateway.errors import ConfigError
from gateway.observe.logs import get_logger

_EVERY: Final = 1.0
_LIVE: Final = frozenset({"upstreams", "separator", "prefix", "tool_search", "files", "warnings"})
"""What a running gateway takes over; the rest needs a restart."""

Reread = Callable[[], GatewayConfig]
Apply = Callable[[GatewayConfig], Awaitable[None]]
log = get_logger("serve")


class Reloader:
    """Follows the files of one configuration."""

    def __init__(
        self, config: GatewayConfig, reread: Reread, apply: Apply, besides: Mapping[Path, Callable[[], None]]
    ) -> None:
        """`reread` builds the configuration as at the start; `apply` serves it from now on.

        `besides`: files of others, and what is to be called when one of them changed.
        """
        self._besides = besides
        self._seen_besides = {path: state_of([path]) for path in besides}
        self._config = config
        self._reread = reread
        self._apply = apply
        self._seen = state_of(config.files)

    async def follow(self) -> None:
        """Take over every change, for ever."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._on_signal)
            while True:
                await anyio.sleep(_EVERY)
                if state_of(self._config.files) != self._seen:
                    await self.reload("its files changed")
                for path, changed in self._besides.items():
                    if (state := state_of([path])) != self._seen_besides[path]:
                        self._seen_besides[path] = state
                        changed()

    async def reload(self, cause: str) -> bool:
        """Read everything anew and take it over; False: it is wrong, and nothing changed."""
        self._seen = state_of(self._config.files)
        try:
            fresh = await anyio.to_thread.run_sync(self._reread)
        except ConfigError as error:
            log.error("configuration not taken over: it is wrong, and nothing changed", cause=error.message)
            return False
        late = [f.name for f in fields(fresh) if f.name not in _LIVE and _differs(fresh, self._config, f.name)]
        kept = replace(fresh, **{name: getattr(self._config, name) for name in late})
        if late:
            log.warning("some settings wait for a restart", settings=late)
        if _taken(kept) == _taken(self._config):
            self._config = kept
            return True
        for warning in kept.warnings:
            log.warning(warning)
        await self._apply(kept)
        self._config = kept
        self._seen = state_of(kept.files)
        log.info("configuration taken over", cause=cause, upstreams=len(kept.upstreams))
        return True

    async def _on_signal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGHUP) as signals:
            async for _ in signals:
                await self.reload("SIGHUP")


def state_of(files: Sequence[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """What tells two states of files apart; None for one that is not there (an editor may be replacing it)."""
    states: list[tuple[int, int, int] | None] = []
    for path in files:
        try:
            found = path.stat()
        except OSError:
            states.append(None)
        else:
            states.append((found.st_ino, found.st_mtime_ns, found.st_size))
    return tuple(states)


def _differs(one: GatewayConfig, other: GatewayConfig, name: str) -> bool:
    return getattr(one, name) != getattr(other, name)


def _taken(config: GatewayConfig) -> tuple[object, ...]:
    return (config.upstreams, config.separator, config.prefix, config.tool_search)
