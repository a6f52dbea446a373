"""The time of an event loop, which passes when a test says so. Only the loop of asyncio lets a test set it."""

import asyncio
import math

import anyio.lowlevel
import pytest


class LoopClock:
    """The time of the running loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self.now: float = math.ceil(loop.time())
        monkeypatch.setattr(loop, "time", lambda: self.now)

    async def passes(self, seconds: float) -> None:
        """Let this time pass, and everything go on that can."""
        # So that a deadline and the time that it is reached are one number, however the seconds were added up.
        self.now = round(self.now + seconds, 6)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
