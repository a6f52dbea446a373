"""Two descriptors as one connection of lines, without a thread.

Turns input into lines for `received`, and writes frames without blocking. A descriptor that can't be polled (a regular
file, `/dev/null`) is read and written directly, because it never blocks. `claim_stdio` reserves standard input and
output for the protocol: anything else that is printed meanwhile goes to standard error, so that no stray print can
break the protocol. It knows no JSON.
"""

import asyncio
import os
import stat
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager

from gateway.protocol.lines import LineSplitter, LongLine

_READ = 256 * 1024


@contextmanager
def claim_stdio() -> Generator[tuple[int, int]]:
    """Copies of the descriptors of standard input and output, which are `/dev/null` and standard error meanwhile."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    try:
        yield source, sink
    finally:
        os.dup2(source, 0)
        os.dup2(sink, 1)
        for descriptor in (source, sink, nothing):
            os.close(descriptor)


class Pipe:
    """Lines in, frames out."""

    def __init__(
        self,
        source: int,
        sink: int,
        *,
        line_bound: int,
        received: Callable[[bytes | LongLine], None],
        ended: Callable[[], None],
        drained: Callable[[], None],
    ) -> None:
        """Use two open descriptors, which the caller must close.

        Args:
            line_bound: bytes of the longest line that is kept.
            received: called with each line.
            ended: called when nothing more will come in, or when nobody reads what goes out.
            drained: called whenever the rest of writes that did not complete at once has been written.
        """
        self._source = source
        self._sink = sink
        self._splitter = LineSplitter(line_bound)
        self._received = received
        self._ended = ended
        self._drained_now = drained
        self._loop = asyncio.get_running_loop()
        self._waits_for_source = _is_pipe(source) or os.isatty(source)
        self._waits_for_sink = _is_pipe(sink)
        self._blocking = os.get_blocking(sink)
        self._reading = False
        self._over = False
        self._left: deque[memoryview] = deque()
        self._unwritten = 0
        self._drained = asyncio.Event()
        self._drained.set()

    @property
    def is_file(self) -> bool:
        """Whether the input is a file, whose end does not mean that a client left."""
        return stat.S_ISREG(os.fstat(self._source).st_mode)

    @property
    def unwritten(self) -> int:
        """Bytes that the other side has not taken yet."""
        return self._unwritten

    def open(self) -> None:
        """Start reading."""
        if self._waits_for_sink:
            os.set_blocking(self._sink, False)
        self.resume()

    def close(self) -> None:
        """Stop reading and writing, and restore the mode of the descriptors."""
        self._over = True
        self.pause()
        self._stop_writing()
        os.set_blocking(self._sink, self._blocking)

    def pause(self) -> None:
        """Stop reading for now."""
        if self._reading and self._waits_for_source:
            self._loop.remove_reader(self._source)
        self._reading = False

    def resume(self) -> None:
        """Read again."""
        if self._reading or self._over:
            return
        self._reading = True
        if self._waits_for_source:
            self._loop.add_reader(self._source, self._read)
        else:
            self._loop.call_soon(self._read_file)

    def write(self, data: bytes) -> None:
        """Write as much as the other side takes now, and the rest when it can take more."""
        if self._over:
            return
        self._left.append(memoryview(data))
        self._unwritten += len(data)
        if not self._drained.is_set():
            return
        self._write_some()
        if self._left:
            self._drained.clear()
            self._loop.add_writer(self._sink, self._write_rest)

    async def flushed(self) -> None:
        """Return when everything is written, or nothing more can be."""
        await self._drained.wait()

    def _read_file(self) -> None:
        if self._reading:
            self._read()
        if self._reading:
            self._loop.call_soon(self._read_file)

    def _read(self) -> None:
        try:
            data = os.read(self._source, _READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        lines = self._splitter.feed(data) if data else self._splitter.close()
        for line in lines:
            self._received(line)
        if not data:
            self.pause()
            self._ended()

    def _write_rest(self) -> None:
        self._write_some()
        if not self._left:
            self._stop_writing()
            if not self._over:
                self._drained_now()

    def _write_some(self) -> None:
        try:
            while self._left:
                head = self._left[0]
                written = os.write(self._sink, head)
                self._unwritten -= written
                if written == len(head):
                    self._left.popleft()
                else:
                    self._left[0] = head[written:]
        except BlockingIOError:
            return
        except OSError:
            self._over = True
            self._stop_writing()
            self._ended()

    def _stop_writing(self) -> None:
        self._left.clear()
        self._unwritten = 0
        if not self._drained.is_set():
            self._loop.remove_writer(self._sink)
            self._drained.set()


def _is_pipe(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
