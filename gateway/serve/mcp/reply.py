"""The answer to one POST of either era: JSON where nothing was pushed before it, else a stream that ends with it.

Turns what is said while a request runs into the events of its response. The request runs in the task that it came in,
and goes on there where its client has left and may come back; only a stream needs a task more, which writes it. It
knows no era and no session.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, cast

from gateway.deadlines import Deadlines
from gateway.serve.mcp.http import Events, HttpRequest, Watch, send_frame, write_events
from gateway.serve.mcp.outbox import Stream


class Pushes(Events, Protocol):
    """The events of one response."""

    @property
    def stream(self) -> Stream:
        """Where what is pushed goes."""
        ...

    def finish(self, frame: bytes | None) -> None:
        """The last frame, if there is one."""
        ...

    def leave(self) -> bool:
        """Its client is gone; gives whether it may come back for the rest."""
        ...

    def detach(self) -> None:
        """The response is over."""
        ...


class Reply(Watch):
    """Where the answer to one POST goes, and what is pushed before it. A context for the task that makes the answer."""

    __slots__ = ("_gone", "_open", "_over", "_pushes", "_request", "_task", "_writer")

    def __init__(self, request: HttpRequest, open_pushes: Callable[[], Pushes], deadlines: Deadlines) -> None:
        """`open_pushes` is called once the answer is to be a stream."""
        self._request = request
        self._open = open_pushes
        self._pushes: Pushes | None = None
        self._writer: asyncio.Task[None] | None = None
        self._over = False
        self._gone = False
        self._task = cast("asyncio.Task[Any]", asyncio.current_task(deadlines.loop))
        # `super()` takes twice the time of the name.
        Watch.__init__(self, request.receive, deadlines)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Nothing is owed any more. Takes back the cancellation with which a client's going ended its request."""
        self.stop()
        if self._pushes is not None and self._writer is not None:
            if not self._over:
                self._pushes.finish(None)
            self._writer.cancel()
        self._over = True
        # Nothing outside knows of ours; if it is not the only one, somebody else's goes on.
        return self._gone and self._task.uncancel() == 0 and kind is asyncio.CancelledError

    def tell(self, method: str, params: Mapping[str, Any], key: Hashable = None) -> None:
        """A notification; it begins the stream."""
        if not self._over:
            self._begun().stream.tell(method, params, key)

    def offer(self, data: bytes) -> bool:
        """A request of ours, if there is room; it begins the stream."""
        return not self._over and self._begun().stream.offer(data)

    def put(self, data: bytes) -> None:
        """A frame that must arrive; it begins the stream."""
        if not self._over:
            self._begun().stream.put(data)

    def begin(self) -> None:
        """Answer by a stream, even if there is nothing for it yet."""
        self._begun()

    def late(self) -> None:
        """Its client is to hear of us: a stream begins, with pings."""
        self._begun()

    def left(self) -> None:
        """Its client left: nobody needs the answer, unless the stream can be taken up again."""
        if self._over and self._writer is not None and self._writer.done():
            # It has all: a response that is complete looks as if its client had left.
            return
        if self._pushes is None or not self._pushes.leave():
            self._gone = True
            self._task.cancel()

    async def finish(self, frame: bytes | None, status: int = 200) -> None:
        """Write the answer. `frame`: the last one; None: a stream has had them all. `status`: of one in JSON."""
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
