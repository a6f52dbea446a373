"""A session that is asked for over HTTP, and ended where it comes when nobody wants it any more.

A server that is slow to start may be asked for either era at a time, and one answer counts. The other must not leave a
session behind at the server: its `initialize` is heard to its end, for a while, and what it opened is deleted. It knows
no era and no message.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from gateway.proxy.transport.http.channel import Channel

_LATE: Final = 30.0
"""Seconds that a server gets for the answer to an `initialize` that nobody waits for."""


async def open_session(
    asking: Coroutine[Any, Any, dict[str, Any]], channel: Channel, keep: Callable[[asyncio.Future[Any]], None]
) -> dict[str, Any]:
    """The result of `asking`, which begins a session on the channel. Raises what it raises.

    Args:
        keep: takes what goes on beside, for no longer than the transport lives.
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
