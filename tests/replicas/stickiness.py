"""What stickiness at the balancer saves: how many requests of 2025 come to the replica that has their session.

HAProxy and nginx, each without stickiness and with what docs/scale.md shows, read from that page. Correct they are all.
"""

import random
import re
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aiohttp
import anyio
import uvloop

from tests.replicas.balancers import haproxy, nginx
from tests.replicas.clients import Client, Tickets
from tests.replicas.found import Found, Options
from tests.replicas.ledger import ANSWERED, CANCELLED, Ledger
from tests.replicas.network import CLIENTS
from tests.replicas.site import Site, site

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
_CALLS = 600


def examples() -> dict[str, str]:
    """The balancers' lines that the page shows, by their language."""
    return dict(re.findall(r"```(haproxy|nginx)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))


def scene(folder: Path, options: Options) -> Found:
    """Try each way."""
    shown = examples()
    ways = {
        "haproxy, in turns": (haproxy, "balance roundrobin"),
        "haproxy, as on the page": (haproxy, shown["haproxy"]),
        "haproxy, by a hash of the session": (haproxy, "balance hdr(mcp-session-id)\n  hash-type consistent"),
        "nginx, in turns": (nginx, ""),
        "nginx, as on the page": (nginx, shown["nginx"]),
        "nginx, by a hash of the session": (nginx, "hash $http_mcp_session_id consistent;"),
    }
    found = Found()
    for number, (what, (make, balance)) in enumerate(ways.items()):
        own = folder / str(number)
        own.mkdir()
        with site(own, 3, make=partial(make, balance=balance)) as made:
            share = uvloop.run(_share(made, found))
        found.lines.append(f"  {what}: {share:.0%} of requests came to the replica that has their session")
        found.told[what] = round(share, 2)
    for what in ("haproxy", "nginx"):
        if found.told[f"{what}, as on the page"] < 1:
            found.faults.append(f"{what} does not keep sessions with their replica")
    return found


async def _share(made: Site, found: Found) -> float:
    ledger = Ledger()
    tickets = Tickets(_CALLS)
    async with AsyncExitStack() as stack, anyio.create_task_group() as tasks:
        for number, address in enumerate(CLIENTS):
            # Each has an address of its own, as clients have.
            connector = aiohttp.TCPConnector(local_addr=(address, 0))
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            client = Client(http, f"{made.url}/mcp", "2025", ledger, made.owner, random.Random(number))
            tasks.start_soon(client.run, tickets)
    right = (ANSWERED, CANCELLED)
    found.faults += [f"call {call.number}: {call.outcome}" for call in ledger.calls if call.outcome not in right]
    return sum(call.asked == {call.owner} for call in ledger.calls) / len(ledger.calls)
