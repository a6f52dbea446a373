"""The model file of an embedded engine, watched for a change that makes another attempt worthwhile.

Turns the settings of an engine into a stamp of its model's file, and waits until that changes. An engine that is not
ours has no file, which never changes.
"""

from pathlib import Path
from typing import Final

import anyio
from anyio.to_thread import run_sync

from gateway.config import EngineConfig
from gateway.engine.embedded.model_file import Stamp, model_fault, model_stamp
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.errors import ConfigError

_POLL: Final = 1.0
"""Seconds between two looks at the file."""


class ModelFile:
    """The file that an embedded engine loads."""

    def __init__(self, settings: EngineConfig) -> None:
        """Look at nothing yet."""
        self._settings = settings

    def fault(self) -> str | None:
        """Why llama.cpp can't load it; None: nothing is known against it, or there is no file."""
        return None if (path := self._path()) is None else model_fault(path)

    async def stamp(self) -> Stamp:
        """What to compare later."""
        return () if (path := self._path()) is None else await run_sync(model_stamp, path)

    async def until_changed(self, before: Stamp) -> None:
        """Return when the file is not as it was before, and is at rest: a download may be writing it."""
        last = before
        while True:
            await anyio.sleep(_POLL)
            now = await self.stamp()
            if now != before and now == last:
                return
            last = now

    def _path(self) -> Path | None:
        if self._settings.kind != "embedded":
            return None
        try:
            return self._settings.model or packaged_model()
        except ConfigError:
            return None
