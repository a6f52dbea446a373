"""The common secret: exchanged under load; and names that are forged, of another purpose, principal or installation.

What belongs to the connection between two replicas (records that are forged, recorded or moved, another secret, a
request for another start) is held by tests/gateway/replicas; here it is what a client can try.
"""

import random
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.to_thread
import uvloop

from tests.replicas.clients import HEADERS, Client, Era, Errand, Tickets, message_of
from tests.replicas.found import Found, Options
from tests.replicas.ledger import Call, Ledger, Loss
from tests.replicas.site import Replica, Site, now, site

_CLIENTS = 16
_CALLS = 1_000_000


def scene(folder: Path, options: Options) -> Found:
    """Exchange the secret of three replicas, then ask them for what they must not give; a fourth has another secret."""
    with site(folder, 4, running=3) as made:
        found = uvloop.run(_rotated(made, options.seed))
        stranger = made.replicas[3]
        _configure(stranger, folder / "stranger", None, "fedcba9876543210" * 4)
        made.start(stranger)
        uvloop.run(_Strangers(made, found).run())
    return found


def _configure(replica: Replica, key: Path, previous: Path | None, text: str | None = None) -> None:
    if text is not None:
        key.write_text(text)
    lines = [f'key_file = "{key}"', *([] if previous is None else [f'previous_key_file = "{previous}"'])]
    path = replica.folder / "codec-gateway.toml"
    kept = [line for line in path.read_text().splitlines() if "key_file" not in line]
    at = kept.index("[replicas]") + 1
    path.write_text("\n".join([*kept[:at], *lines, *kept[at:]]) + "\n")


async def _rotated(made: Site, seed: int) -> Found:
    """Three steps, each a restart of every replica in turn, while clients call."""
    old, new = made.key, made.key.with_name("key-new")
    new.write_text("00112233445566778899aabbccddeeff" * 2)
    ledger, tickets = Ledger(), Tickets(_CALLS)
    async with aiohttp.ClientSession() as http, anyio.create_task_group() as tasks:
        for number in range(_CLIENTS):
            era: Era = "2025" if number % 2 else "2026"
            draw = random.Random(seed * 1000 + number)
            tasks.start_soon(Client(http, f"{made.url}/mcp", era, ledger, made.owner, draw).run, tickets)
        for key, previous in ((old, new), (new, old), (new, None)):
            for replica in made.replicas[:3]:
                began = now()
                await anyio.to_thread.run_sync(replica.drain)
                made.losses.append(Loss(replica.name, "drain", began, now()))
                _configure(replica, key, previous)
                await anyio.to_thread.run_sync(made.start, replica)
        tickets.end()
    counts = await anyio.to_thread.run_sync(made.counts)
    outcomes = {name: sum(kinds.values()) for name, kinds in ledger.table(counts).items()}
    faults = ledger.faults(made.losses, counts)
    refused = sum("connection from another replica was closed" in each.log.read_text() for each in made.replicas[:3])
    if refused:
        faults.append(f"{refused} replicas refused connections of others")
    lines = [f"  {len(ledger.calls)} calls while the secret was exchanged, in 9 restarts: {outcomes}"]
    return Found(lines, {"rotation": outcomes}, faults)


class _Strangers:
    """Whoever may not, or names what is not."""

    def __init__(self, made: Site, found: Found) -> None:
        self._site = made
        self._found = found

    async def run(self) -> None:
        owner, other, _, stranger = self._site.replicas
        key = owner.key("other")
        async with aiohttp.ClientSession() as http:
            client = Client(http, f"{owner.url}/mcp", "2025", Ledger(), self._site.owner, random.Random(1))
            await client.begin()
            session = str(client.session)
            forged = session[:-1] + ("A" if session[-1] != "A" else "B")
            modern = Client(http, f"{owner.url}/mcp", "2026", Ledger(), self._site.owner, random.Random(1))
            errand = Errand(modern, Call(1, "2026", "ask"), "s0", "word")
            more = errand.next_round((await errand.answer())["result"])
            state = more["requestState"].removeprefix("codec-gateway.")
            tries = (
                ("its own session, through another replica", other, session, None, 200),
                ("session, forged", other, forged, None, 404),
                ("session, of another purpose", other, state, None, 404),
                ("session, of another principal", other, session, key, 404),
                ("session, at a gateway with another secret", stranger, session, None, 404),
                ("session, at its owner, by another principal", owner, session, key, 404),
            )
            for what, replica, name, bearer, right in tries:
                self._found.expect(what, await _ping(http, replica, name, bearer), right)
            rounds = (
                ("waiting call, forged", other, state[:-1] + ("A" if state[-1] != "A" else "B")),
                ("waiting call, of another purpose", other, session),
                ("waiting call, at a gateway with another secret", stranger, state),
            )
            for what, replica, name in rounds:
                modern.url = f"{replica.url}/mcp"
                said = await errand.answer({**more, "requestState": f"codec-gateway.{name}"})
                self._found.expect(what, said.get("error", {}).get("code"), -32602)
            modern.url = f"{other.url}/mcp"
            self._found.expect("waiting call, its own, elsewhere", "result" in await errand.answer(more), True)
            said = await errand.answer(more)
            self._found.expect("waiting call, a second time", said.get("error", {}).get("code"), -32602)


async def _ping(http: aiohttp.ClientSession, replica: Replica, session: str, bearer: str | None) -> int:
    headers: dict[str, Any] = {**HEADERS, "mcp-session-id": session}
    if bearer is not None:
        headers["authorization"] = f"Bearer {bearer}"
    async with http.post(f"{replica.url}/mcp", json=message_of("ping", {}, 1), headers=headers) as answer:
        return answer.status
