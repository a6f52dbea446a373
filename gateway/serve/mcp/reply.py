"""The answer to one POST of either era: JSON if nothing was pushed before it, else a stream that ends with it.

Turns what is sent while a request runs into the events of its response. The request runs in the task in which it came,
and goes on there after its client has left if the client may come back; only a stream needs another task, which writes
it. It knows no era and no session.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from gateway.deadlines import Deadlines
from gateway.serve.mcp.http import Events, HttpRequest, Watch, send_frame, write_events
from gateway.serve.mcp.outbox import Stream


class Pushes(Events, Protocol):
    """The events of one response."""

    @property
    def stream(self) -> Stream:
        """Takes what is pushed."""
        ...

    def finish(self, frame: bytes | None) -> None:
        """End the events, with a last frame if there is one."""
        ...

    def leave(self) -> bool:
        """Record that the client is gone. Returns whether it may come back for the rest."""
        ...

    def detach(self) -> None:
        """Record that the response is over."""
        ...


class Reply(Watch):
    """Sends the answer to one POST, and what is pushed before it. A context for the task that makes the answer."""

    __slots__ = ("_gone", "_open", "_over", "_pushes", "_request", "_task", "_writer")

    def __init__(self, request: HttpRequest, open_pushes: Callable[[], Pushes], deadlines: Deadlines) -> None:
        """`open_pushes` is called once the answer is to be a stream."""
        self._request = request
        self._open = open_pushes
        self._pushes: Pushes | None = None
        self._writer: asyncio.Task[None] | None = None
        self._over = False
        self._gone = False
        self._task: asyncio.Task[Any] = asyncio.current_task(deadlines.loop)  # pyright: ignore[reportAttributeAccessIssue]
        # Calling by `super()` takes twice the time of calling by the class's name.
        Watch.__init__(self, request.receive, deadlines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Stop the watch and the writer. Withdraws our own cancellation of a request whose client left."""
        self.stop()
        if self._pushes is not None and self._writer is not None:
            if not self._over:
                self._pushes.finish(None)
            self._writer.cancel()
        self._over = True
        # Our own cancellation is private. If it was not the only one, somebody else's must go on.
        return self._gone and self._task.uncancel() == 0 and kind is asyncio.CancelledError

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """Send a notification; this begins the stream."""
        if not self._over:
            self._begun().stream.tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """Send a request of the gateway's, if there is room; this begins the stream. Returns whether it was sent."""
        return not self._over and self._begun().stream.offer(data)

    def put(self, data: bytes) -> None:
        """Send a frame that must arrive; this begins the stream."""
        if not self._over:
            self._begun().stream.put(data)

    def begin(self) -> None:
        """Answer by a stream, even if there is nothing for it yet."""
        self._begun()

    def late(self) -> None:
        """Begin a stream, whose pings show the client that we are still there."""
        self._begun()

    def left(self) -> None:
        """Cancel the request: its client left, so nobody needs the answer, unless the stream can be resumed."""
        if self._over and self._writer is not None and self._writer.done():
            # The client has everything: after a complete response, it looks as if the client had left.
            return
        if self._pushes is None or not self._pushes.leave():
            self._gone = True
            self._task.cancel()

    async def finish(self, frame: bytes | None, status: int = 200) -> None:
        """Write the answer. `frame`: the last one; None: the stream has had all. `status`: of an answer in JSON."""
        self._over = True
        if self._pushes is None or self._writer is None:
            self.stop()
            await send_frame(self._request.send, status, frame or b"")
            return
        self._pushes.finish(frame)
        await self._writer

    def _begun(self) -> Pushes:
        if self._pushes is None:
            self._pushes = pushes = self._open()
            self._writer = asyncio.get_running_loop().create_task(write_events(self._request.send, pushes))
            self._writer.add_done_callback(lambda _: pushes.detach())
            self.look()
        return self._pushes
