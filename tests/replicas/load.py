"""The load: many clients over one site while its replicas are lost, and what came of all calls."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio

from tests.replicas import sdk
from tests.replicas.clients import SHARED_KINDS, Client, Era, Tickets
from tests.replicas.havoc import Havoc
from tests.replicas.ledger import Ledger, Loss, Store
from tests.replicas.outages import Outages
from tests.replicas.site import Site

_RATE = "600000"
"""Requests a minute: more than all make."""


@dataclass
class Outcome:
    """What came of it."""

    calls: int
    seconds: float
    table: dict[str, dict[str, int]]
    lost: dict[str, int]
    again: int
    resumed: int
    left: dict[str, int]
    """What became of answers whose replica was gone when their clients came back."""
    outages: dict[str, int]
    """Of the store."""
    faults: list[str] = field(default_factory=list[str])
    losses: list[Loss] = field(default_factory=list[Loss])

    def lines(self) -> list[str]:
        """For a person."""
        rows = [f"  {sum(kinds.values()):6}  {name}  ({_shown(kinds)})" for name, kinds in self.table.items()]
        return [
            f"  {self.calls} calls in {self.seconds:.0f} s; replicas: {_shown(self.lost)}",
            *rows,
            f"  told to come again (503): {self.again}; streams taken up by their last event: {self.resumed}",
            *(
                [f"  the store: {_shown(self.outages)}; answers of replicas that were gone: {_shown(self.left)}"]
                if self.outages
                else []
            ),
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
            **({"store": self.outages, "answers_of_replicas_that_were_gone": self.left} if self.outages else {}),
        }


def _shown(numbers: dict[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


async def load(site: Site, calls: int, clients: int, seed: int, pause: tuple[float, float]) -> Outcome:
    """So many calls by so many clients, half of each era, while replicas are lost at random.

    Where they share a store, that is lost too, and most clients have keys with a rate: each request asks it something.
    """
    ledger, tickets = Ledger(), Tickets(calls)
    havoc = Havoc(site, random.Random(seed), pause)
    outages = None if site.store is None else Outages(site, site.store, random.Random(seed), (4.0, 9.0))
    about: dict[str, Any] = {}
    if outages is not None:
        about = {"kinds": SHARED_KINDS, "key": site.replicas[0].key("rated", "--rate", _RATE)}
    began = time.monotonic()
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=60)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http, anyio.create_task_group() as around:
        around.start_soon(havoc.run)
        if outages is not None:
            around.start_soon(outages.run)
        async with anyio.create_task_group() as tasks:
            for number in range(clients):
                draw = random.Random(seed * 1000 + number)
                era: Era = "2025" if number % 2 else "2026"
                if number < clients // 8:
                    tasks.start_soon(sdk.run, f"{site.url}/mcp", era, ledger, draw, tickets)
                    continue
                client = Client(http, f"{site.url}/mcp", era, ledger, site.owner, draw, **about)
                tasks.start_soon(client.run, tickets)
        around.cancel_scope.cancel()
    counts = await anyio.to_thread.run_sync(site.counts)
    store = None if outages is None else Store(await anyio.to_thread.run_sync(site.finished), outages.all())
    faults = ledger.faults(site.losses, counts, store)
    if any(havoc.codes):
        faults.append(f"replicas that were asked to end ended with {dict(Counter(havoc.codes))}")
    made: dict[str, Any] = {"again": sum(call.again for call in ledger.calls)}
    made["resumed"] = sum(call.resumed > 0 for call in ledger.calls)
    made["losses"] = site.losses
    made["left"] = {} if store is None else ledger.left(site.losses, counts, store)
    made["outages"] = {} if outages is None else outages.done()
    faults += [] if outages is None else outages.faults
    return Outcome(len(ledger.calls), time.monotonic() - began, ledger.table(counts), havoc.done, faults=faults, **made)
