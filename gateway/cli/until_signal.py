"""Commands that a signal ends in order, with the servers that they started."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar, TypeVarTuple

import anyio

__all__ = ["cancel_on_signal", "run_until_signal"]

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_until_signal(function: Callable[[*Arguments], Awaitable[Result]], *arguments: *Arguments) -> Result:
    """Run a function in an event loop. SIGINT, SIGTERM and SIGHUP cancel it, and raise KeyboardInterrupt when it ended.

    `anyio.run` alone cancels once, and a cancellation that anything below swallows is lost; a scope's is repeated.
    """
    handlers = {number: signal.getsignal(number) for number in _ENDING}
    caught: list[signal.Signals] = []
    results: list[Result] = []

    async def run() -> None:
        with anyio.CancelScope() as scope:
            cancel_on_signal(scope, caught)
            results.append(await function(*arguments))

    try:
        anyio.run(run, backend_options={"use_uvloop": True})
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if caught:
        raise KeyboardInterrupt
    return results[0]


def cancel_on_signal(scope: anyio.CancelScope, caught: list[signal.Signals]) -> None:
    """Cancel `scope` at the first SIGINT, SIGTERM or SIGHUP, and put it into `caught`. A second one ends the process.

    By Python's default SIGTERM and SIGHUP would end the process and leave the servers that it started.
    """
    loop = asyncio.get_running_loop()

    def cancel(number: signal.Signals) -> None:
        caught.append(number)
        for each in heard:
            loop.remove_signal_handler(each)
        scope.cancel()

    # Started by nohup, a command is to outlive its terminal.
    heard = [number for number in _ENDING if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, cancel, number)
