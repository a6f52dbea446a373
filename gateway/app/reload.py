"""Takes over a changed configuration while the gateway runs.

Looks at the files every second (with `stat`, which works on every file system), and at once on SIGHUP. Reads and checks
everything again, and only then hands the new configuration to the services. A configuration that is wrong changes
nothing, and the log says what is wrong. The log also names changes that have to wait for a restart, because a running
process can't make them (addresses, engine, maps, limits).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Final

import anyio

from gateway.config.gateway_config import GatewayConfig
from gateway.errors import ConfigError
from gateway.observe.logs import get_logger

_EVERY: Final = 1.0
_LIVE: Final = frozenset(
    {"upstreams", "views", "separator", "prefix", "tool_search", "safe_names", "approvals", "files", "warnings"}
)
"""Settings that a running gateway takes over; the rest needs a restart."""

Reread = Callable[[], GatewayConfig]
Apply = Callable[[GatewayConfig], Awaitable[None]]
log = get_logger("serve")


class Reloader:
    """Watches the files of one configuration."""

    def __init__(self, config: GatewayConfig, reread: Reread) -> None:
        """Create it as soon as the configuration has been read: it sees what changes from then on.

        `reread` builds the configuration as at the start.
        """
        self._config = config
        self._reread = reread
        self._seen = state_of(config.files)
        self._asked = anyio.Event()

    def ask(self) -> None:
        """Have everything read again, whether or not it looks changed. `follow` also does what was asked before it."""
        self._asked.set()

    async def follow(self, apply: Apply, besides: Mapping[Path, Callable[[], None]]) -> None:
        """Take over every change, one after another, for ever. `apply`: puts a configuration into effect. `besides`:
        other files to watch, and what to call when one of them changes."""
        seen = {path: state_of([path]) for path in besides}
        while True:
            with anyio.move_on_after(_EVERY):
                await self._asked.wait()
            if self._asked.is_set():
                self._asked = anyio.Event()
                await self._reload(apply, "SIGHUP")
            elif state_of(self._config.files) != self._seen:
                await self._reload(apply, "its files changed")
            for path, changed in besides.items():
                if (state := state_of([path])) != seen[path]:
                    seen[path] = state
                    changed()

    async def _reload(self, apply: Apply, cause: str) -> None:
        """Read everything again and take it over; a wrong configuration changes nothing."""
        # Noted before the files are read, so that a change made meanwhile is seen the next time.
        self._seen = state_of(self._config.files)
        try:
            fresh = await anyio.to_thread.run_sync(self._reread)
        except ConfigError as error:
            log.error(
                "configuration not taken over: it is invalid, and the previous one stays in effect", cause=error.message
            )
            return
        if fresh.files != self._config.files:
            self._seen = state_of(fresh.files)
        late = [f.name for f in fields(fresh) if f.name not in _LIVE and _differs(fresh, self._config, f.name)]
        kept = replace(fresh, **{name: getattr(self._config, name) for name in late})
        if late:
            log.warning("some changed settings take effect only after a restart", settings=late)
        changed = _taken(kept) != _taken(self._config)
        self._config = kept
        if not changed:
            return
        for warning in kept.warnings:
            log.warning(warning)
        await apply(kept)
        log.info("configuration taken over", cause=cause, upstreams=len(kept.upstreams))


def state_of(files: Sequence[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """For each file, a value that changes when the file does; None if it is missing (an editor may be replacing it)."""
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
    return (
        *(config.upstreams, config.views, config.separator, config.prefix),
        *(config.tool_search, config.safe_names, config.approvals),
    )
