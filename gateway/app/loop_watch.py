"""Notices what holds the event loop, since nobody is served meanwhile: logs it with the request and counts it.

The loop notes the time ten times a second; a thread looks whether it still does, and if not, where the loop's thread is
and for whose request. It looks at frames only from outside and changes nothing, so a call costs nothing.
"""

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from types import FrameType
from typing import Any, Final, cast

import anyio

from gateway.observe.logs import get_logger
from gateway.serve.http.request_parts import principal_of

# Every call makes a few hundred short-lived objects. With the default thresholds Python's collector then walks all
# modules, tools and maps every few hundred calls; hiding these from it takes about a fifth off a call's CPU
# (bench/results/mcp.json).

_YOUNG: Final = 20_000
"""New objects between two collections of the youngest generation: about a hundred calls, a few megabytes."""


def settle_memory() -> None:
    """Hide what exists now from the collector, and run it less often. Call once, when the gateway is ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, 20, 20)


LONGEST: Final = 0.25
"""Seconds for which the loop may be held: longer than any step that is meant to run on it."""
_PACE: Final = 0.1
_RUNNER: Final = "asyncio.runners"
"""The module below which a thread's frames are no longer those of a callback."""
_OURS: Final = ("gateway.", "leaf_sdk.")

log = get_logger("loop")


@dataclass(frozen=True, slots=True)
class Holder:
    """What holds the loop."""

    place: str
    """The innermost function of ours."""
    request: str | None = None
    principal: str | None = None


class LoopWatch:
    """The watch over one event loop, the one in which `run` is called."""

    def __init__(self, count: Callable[[], object], longest: float = LONGEST) -> None:
        """`count` is called once for each time that the loop was held for more than `longest` seconds."""
        self._count = count
        self._longest = longest
        self._beat = perf_counter()
        self._seen: tuple[float, Holder] | None = None
        """The last beat before the loop was held, and what was found to hold it."""
        self._over = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        watcher = threading.Thread(target=self._watch, args=(threading.get_ident(),), name="loop watch", daemon=True)
        watcher.start()
        try:
            while True:
                self._turn()
                await anyio.sleep(_PACE)
        finally:
            self._over.set()

    def _turn(self) -> None:
        """The loop turns: report what held it, if anything did."""
        now, seen = perf_counter(), self._seen
        self._beat, self._seen = now, None
        if seen is None:
            return
        since, holder = seen
        self._count()
        log.warning(
            "the event loop was held, and nobody was served meanwhile",
            seconds=round(now - since, 2),
            place=holder.place,
            request=holder.request,
            principal=holder.principal,
        )

    def _watch(self, thread: int) -> None:
        while not self._over.wait(_PACE):
            beat = self._beat
            if self._seen is None and perf_counter() - beat > self._longest + _PACE:
                holder = holder_of(sys._current_frames().get(thread))  # pyright: ignore[reportPrivateUsage]
                if holder is not None and beat == self._beat:
                    self._seen = beat, holder


def holder_of(frame: FrameType | None) -> Holder | None:
    """What a thread that runs an event loop is at; None where it waits, or none of our functions runs."""
    place: str | None = None
    for each in _callback(frame):
        module = str(each.f_globals.get("__name__"))
        if place is None and module.startswith(_OURS):
            place = f"{module}.{each.f_code.co_qualname}"
        scope: Any = each.f_locals.get("scope")
        if isinstance(scope, dict) and "path" in scope:
            known = cast("dict[str, Any]", scope)
            return Holder(
                place or module, f"{known.get('method', '')} {known['path']}".strip(), principal_of(known).name
            )
    return None if place is None else Holder(place)


def _callback(frame: FrameType | None) -> Iterator[FrameType]:
    """The frames of the callback that runs, innermost first."""
    while frame is not None and frame.f_globals.get("__name__") != _RUNNER:
        yield frame
        frame = frame.f_back
