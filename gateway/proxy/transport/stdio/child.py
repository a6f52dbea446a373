"""A server's process that this gateway runs itself, as a `Transport`.

Turns what the process writes into lines for the conversation (`transport.py`), each of bounded length. It knows no
messages.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from structlog.typing import FilteringBoundLogger

from gateway.config.model import UpstreamConfig
from gateway.protocol.lines import LineSplitter, LongLine
from gateway.protocol.messages import is_json
from gateway.proxy.caller import Exchange
from gateway.proxy.transport.interface import Transport
from gateway.proxy.transport.stdio.process import Child, run_child
from gateway.proxy.transport.stdio.transport import StdioTransport
from gateway.proxy.transport.stdio.watchdog import Watchdog


class _Reader:
    """Splits the output of one process into lines."""

    def __init__(self, transport: StdioTransport, line_bound: int) -> None:
        self._transport = transport
        self._splitter = LineSplitter(line_bound)

    def read(self, data: bytes) -> None:
        for line in self._splitter.feed(data):
            if isinstance(line, LongLine):
                self._transport.warn_of_length(line.length)
                self._fail(line)
            else:
                self._transport.take(line)
        if (over := self._splitter.over) is not None:
            # The rest of the line must be read to get to the next one, but no request waits for it any more.
            self._fail(over)

    def lose(self, cause: str) -> None:
        for line in self._splitter.close():
            if isinstance(line, bytes) and is_json(line):
                # Only its line end is missing.
                self._transport.take(line)
            else:
                self._transport.server_log.warning("upstream's output ended in the middle of a line")
        self._transport.lose(cause)

    def _fail(self, line: LongLine) -> None:
        if (number := line.answered_id()) is not None:
            self._transport.fail_too_long(number)


@asynccontextmanager
async def open_stdio(
    config: UpstreamConfig,
    pushes: Exchange,
    *,
    line_bound: int,
    log: FilteringBoundLogger,
    watchdog: Watchdog | None = None,
) -> AsyncGenerator[Transport]:
    """Run the command and talk to it; leaving the context ends the process, whatever it does.

    Args:
        config: an upstream whose `command` is set.
        pushes: takes and answers what the server sends of its own accord.
        line_bound: longest message that is read, in bytes.
        log: receives the child's standard error, one event for each line.
        watchdog: ends the process if the gateway itself can't.

    Raises:
        OSError: the program can't be started.
    """
    transport = StdioTransport(pushes, line_bound=line_bound, log=log)
    reader = _Reader(transport, line_bound)
    child = Child(reader.read, reader.lose, log, transport.server_log)
    transport.talk_over(child)
    async with run_child(config, child, watchdog):
        yield transport
