"""Time that passes when a test says so."""

import asyncio
import math

import pytest

from tests.gateway.proxy.transport.kept_log import settled


class Clock:
    """The time of the event loop."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    async def passes(self, seconds: float) -> None:
        """Let this time pass, and everything go on that can."""
        # So that a deadline and the time that it is reached are one number, however the seconds were added up.
        self.now = round(self.now + seconds, 6)
        await settled()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    loop = asyncio.get_running_loop()
    clock = Clock(math.ceil(loop.time()))
    monkeypatch.setattr(loop, "time", clock)
    return clock
