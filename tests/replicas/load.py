"""The load: many clients over one site while its replicas are lost, and what came of all calls."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio

from tests.replicas import sdk
from tests.replicas.clients import Client, Era, Tickets
from tests.replicas.havoc import Havoc
from tests.replicas.ledger import Ledger, Loss
from tests.replicas.site import Site


@dataclass
class Outcome:
    """What came of it."""

    calls: int
    seconds: float
    table: dict[str, dict[str, int]]
    lost: dict[str, int]
    again: int
    resumed: int
    faults: list[str] = field(default_factory=list[str])
    losses: list[Loss] = field(default_factory=list[Loss])

    def lines(self) -> list[str]:
        """For a person."""
        rows = [f"  {sum(kinds.values()):6}  {name}  ({_shown(kinds)})" for name, kinds in self.table.items()]
        return [
            f"  {self.calls} calls in {self.seconds:.0f} s; replicas: {_shown(self.lost)}",
            *rows,
            f"  told to come again (503): {self.again}; streams taken up by their last event: {self.resumed}",
            *(f"  {each}" for each in self.losses if self.faults),
        ]

    def told(self) -> dict[str, Any]:
        """For a file."""
        return {
            "calls": self.calls,
            "seconds": round(self.seconds, 1),
            "replicas": self.lost,
            "outcomes": self.table,
            "told_to_come_again": self.again,
            "streams_taken_up": self.resumed,
        }


def _shown(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


async def load(site: Site, calls: int, clients: int, seed: int, pause: tuple[float, float]) -> Outcome:
    """So many calls by so many clients, half of each era, while replicas are lost at random."""
    ledger, tickets = Ledger(), Tickets(calls)
    havoc = Havoc(site, random.Random(seed), pause)
    began = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http, anyio.create_task_group() as around:
        around.start_soon(havoc.run)
        async with anyio.create_task_group() as tasks:
            for number in range(clients):
                draw = random.Random(seed * 1000 + number)
                era: Era = "2025" if number % 2 else "2026"
                if number < clients // 8:
                    tasks.start_soon(sdk.run, f"{site.url}/mcp", era, ledger, draw, tickets)
                    continue
                client = Client(http, f"{site.url}/mcp", era, ledger, site.owner, draw)
                tasks.start_soon(client.run, tickets)
        around.cancel_scope.cancel()
    counts = await anyio.to_thread.run_sync(site.counts)
    faults = ledger.faults(site.losses, counts)
    if any(havoc.codes):
        faults.append(f"replicas that were asked to end ended with {dict(Counter(havoc.codes))}")
    made: dict[str, Any] = {"again": sum(call.again for call in ledger.calls)}
    made["resumed"] = sum(call.resumed > 0 for call in ledger.calls)
    made["losses"] = site.losses
    return Outcome(len(ledger.calls), time.monotonic() - began, ledger.table(counts), havoc.done, faults=faults, **made)
