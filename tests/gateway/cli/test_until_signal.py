"""Commands that Ctrl-C ends, whatever swallows a cancellation on the way, with what they started ended in order."""

import asyncio
import os
import signal
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest

from gateway.cli.until_signal import run_until_signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    """The suite itself may have been started by nohup, which ignores SIGHUP."""
    outside = {number: signal.getsignal(number) for number in SIGNALS}
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    yield
    after = [signal.getsignal(number) for number in SIGNALS]
    for number, handler in outside.items():
        signal.signal(number, handler)
    assert after == [signal.default_int_handler] * len(SIGNALS)


@pytest.mark.parametrize("number", SIGNALS)
def test_signal_ends_a_command_that_swallows_a_cancellation(number: signal.Signals) -> None:
    steps: list[str] = []

    async def command() -> None:
        os.kill(os.getpid(), number)
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            steps.append("swallowed")
        try:
            await anyio.sleep_forever()
        finally:
            steps.append("ended")

    with pytest.raises(KeyboardInterrupt):
        run_until_signal(command)

    assert steps == ["swallowed", "ended"]


def test_command_that_ends_by_itself_has_its_result_and_its_own_error() -> None:
    async def divide(number: int, by: int) -> float:
        await anyio.lowlevel.checkpoint()
        return number / by

    assert run_until_signal(divide, 6, 3) == 2
    with pytest.raises(ZeroDivisionError):
        run_until_signal(divide, 6, 0)


def test_command_started_by_nohup_outlives_its_terminal() -> None:
    async def command() -> str:
        os.kill(os.getpid(), signal.SIGHUP)
        await anyio.lowlevel.checkpoint()
        return "done"

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_until_signal(command) == "done"
    finally:
        signal.signal(signal.SIGHUP, before)
