"""A generation that goes on with another engine when its own is lost.

Turns one run of a generation into as many as it takes: each goes on from the prompt and the ids that are there, so that
nobody is told an id twice, and none is left out. It knows neither ids nor events; what may be gone on from, whoever
generates says (`rewind`).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.engine.stay import Stay, is_loss
from gateway.errors import EngineError

T = TypeVar("T")


async def replayed(
    stay: Stay, run: Callable[[], Awaitable[T]], rewind: Callable[[EngineError], Awaitable[T | None]]
) -> T:
    """Run until it comes to an end.

    Args:
        stay: the engine, and those that can take its place.
        run: generates with the engine that there is.
        rewind: makes ready to go on from what is there; gives the outcome where nothing is left to do, and raises where
            it can't be gone on from.

    Raises `EngineError`: what the last engine was lost of, or what no other could do better.
    """
    while True:
        try:
            return await run()
        except EngineError as error:
            stay.lost(error)
            if not (stay.may_move and is_loss(error)):
                raise
            done = await rewind(error)
            if done is not None:
                return done
            stay.move(error)
