"""Replicas that are killed, drained and added, one after the other, while others serve."""

import random

import anyio
import anyio.to_thread

from tests.replicas.ledger import Loss
from tests.replicas.site import Replica, Site, now


class Havoc:
    """What happens to the replicas of a site. One is well at any time, and more as a rule."""

    def __init__(self, site: Site, draw: random.Random, pause: tuple[float, float]) -> None:
        """`pause`: seconds between two of its deeds."""
        self._site = site
        self._draw = draw
        self._pause = pause
        self.done = {"kill": 0, "drain": 0, "add": 0}
        self.codes: list[int] = []
        """Exit codes of those that were drained."""
        self._changing: set[str] = set()

    async def run(self) -> None:
        """Until cancelled; what has begun is ended then."""
        async with anyio.create_task_group() as tasks:
            while True:
                await anyio.sleep(self._draw.uniform(*self._pause))
                away = [each for each in self._site.replicas if not each.runs and each.name not in self._changing]
                well = [each for each in self._site.replicas if each.runs and each.name not in self._changing]
                if away and self._draw.random() < 0.5:
                    tasks.start_soon(self._change, self._draw.choice(away), "add")
                elif len(well) > 1:
                    tasks.start_soon(self._change, self._draw.choice(well), self._draw.choice(["kill", "drain"]))

    async def _change(self, replica: Replica, how: str) -> None:
        self._changing.add(replica.name)
        with anyio.CancelScope(shield=True):
            if how != "add":
                self.done[how] += 1
                await self._lose(replica, how)
                # Its place is taken again at once as often as not.
                if self._draw.random() < 0.5:
                    self._changing.discard(replica.name)
                    return
            self.done["add"] += 1
            await anyio.to_thread.run_sync(self._site.start, replica)
        self._changing.discard(replica.name)

    async def _lose(self, replica: Replica, how: str) -> None:
        began = now()
        if how == "kill":
            await anyio.to_thread.run_sync(replica.kill)
        else:
            self.codes.append(await anyio.to_thread.run_sync(replica.drain))
        self._site.losses.append(Loss(replica.name, how, began, now()))  # type: ignore[arg-type]
