"""A store that is killed, emptied and frozen, one after the other, while the replicas that share it serve."""

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from typing import Final

import anyio
import anyio.to_thread

from tests.replicas.ledger import Outage
from tests.replicas.site import Replica, Site, now
from tests.replicas.store import Redis

_HOW: Final = ("kept", "frozen", "forgot")
_AGAIN: Final = 60.0
"""Seconds within which every replica has found a store that is there again, those that just start included."""


class Outages:
    """What happens to the store of a site."""

    def __init__(self, site: Site, store: Redis, draw: random.Random, pause: tuple[float, float]) -> None:
        """`pause`: seconds between two outages."""
        self._site = site
        self._store = store
        self._draw = draw
        self._pause = pause
        self._own: list[Outage] = []
        self.faults: list[str] = []

    async def run(self) -> None:
        """Until cancelled; what has begun is ended then."""
        for how in cycle(_HOW):
            await anyio.sleep(self._draw.uniform(*self._pause))
            with anyio.CancelScope(shield=True):
                await self._lose(how, self._draw.uniform(0.5, 4.0))
                await self._until_found()

    def all(self) -> list[Outage]:
        """All of them, and what each replica said of the store."""
        return [*self._own, *(outage for each in self._site.replicas for outage in _said(each))]

    def done(self) -> dict[str, int]:
        """How many, by kind."""
        return {how: sum(each.how == how for each in self._own) for how in _HOW}

    async def _lose(self, how: str, seconds: float) -> None:
        began = now()
        if how == "frozen":
            self._store.freeze()
        else:
            await anyio.to_thread.run_sync(self._store.kill)
        await anyio.sleep(seconds)
        if how == "frozen":
            self._store.thaw()
        else:
            await anyio.to_thread.run_sync(partial(self._store.start, empty=how == "forgot"))
        self._own.append(Outage(how, began, now()))  # type: ignore[arg-type]

    async def _until_found(self) -> None:
        """Wait until each replica that runs has found the store again, once."""
        waiting, until = {each.name for each in self._site.replicas}, now() + _AGAIN
        while now() < until:
            for each in self._site.replicas:
                if not each.runs or await anyio.to_thread.run_sync(each.asks_store):
                    waiting.discard(each.name)
            if not waiting:
                return
            await anyio.sleep(0.2)
        self.faults.append(
            f"the store was there again, and {_AGAIN:g} s later {', '.join(sorted(waiting))} asked nothing"
        )


def _said(replica: Replica) -> Iterable[Outage]:
    """When the store was away, as its log has it."""
    began = None
    clock = now() - datetime.now(UTC).timestamp()
    for entry in replica.events("the shared store", ever=True):
        at = datetime.fromisoformat(entry["timestamp"]).timestamp() + clock
        if "can't be used" in entry["event"]:
            began = at if began is None else began
        elif began is not None and "answers" in entry["event"]:
            yield Outage("said", began, at, replica.name)
            began = None
    if began is not None:
        yield Outage("said", began, now(), replica.name)
