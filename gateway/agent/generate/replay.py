"""A generation that continues on another engine when its own is lost.

Turns one run of a generation into as many as it takes: each continues from the prompt and the ids so far, so that no id
is reported twice, and none is left out. It knows neither ids nor events; the caller decides whether and where the
generation can continue (`rewind`).
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.engine.pool.members import Stay, is_loss
from gateway.errors import EngineError, EngineLost

T = TypeVar("T")


def lost_grammar(error: EngineError) -> EngineLost:
    """Return the error for an answer under a grammar, which another engine would start from the beginning."""
    return EngineLost(
        "the engine was lost during an answer under a grammar, which no other engine can continue; "
        f"keep the part that has arrived, or ask again ({error.message})"
    )


async def replayed(
    stay: Stay, run: Callable[[], Awaitable[T]], rewind: Callable[[EngineError], Awaitable[T | None]]
) -> T:
    """Run until one run completes; return its outcome.

    Args:
        stay: the engine, and those that can take its place.
        run: generates on the current engine.
        rewind: prepares to continue from what was generated; returns the outcome where nothing is left to do, and
            raises where the generation can't continue.

    Raises `EngineError`: the reason that the last engine was lost, or an error that another engine would give too.
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
