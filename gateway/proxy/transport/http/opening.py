"""A session that is requested over HTTP, and ended if it comes when nobody wants it any more.

A server that is slow to start may be asked for both eras at the same time, and only one answer counts. The other must
not leave a session at the server: the answer to its `initialize` is awaited for a while, and the session that it opened
is deleted. It knows no era and no message.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.proxy.transport.http.channel import Channel

_LATE: Final = 30.0
"""Seconds to wait for the answer to an `initialize` that nobody wants any more."""


async def open_session(
    asking: Coroutine[Any, Any, dict[str, Any]], channel: Channel, keep: Callable[[asyncio.Future[Any]], None]
) -> dict[str, Any]:
    """Return the result of `asking`, which begins a session on the channel. Raises what it raises.

    Args:
        keep: takes tasks that go on in the background, at most as long as the transport lives.
    """
    asked = asyncio.ensure_future(asking)
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        keep(asked)
        keep(asyncio.ensure_future(_end_unwanted(asked, channel)))
        raise


async def _end_unwanted(asked: asyncio.Future[dict[str, Any]], channel: Channel) -> None:
    try:
        await asyncio.wait([asked], timeout=_LATE)
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    await channel.end_session()
