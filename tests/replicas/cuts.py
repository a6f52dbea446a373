"""Two replicas that do not reach each other, while clients reach both: what is told, how soon, and what goes on.

One replica has a session and a call that waits for its client; requests for them come through the one that is cut off
from it. What could not be sent on is told to be gone, and is not: through every other replica, and through the same one
when the network is whole again, it is there.
"""

import random
from dataclasses import replace
from pathlib import Path

import aiohttp
import anyio
import uvloop

from tests.replicas.clients import Client, Errand
from tests.replicas.found import Found, Options
from tests.replicas.ledger import ANSWERED, CALL_GONE, SESSION_GONE, Call, Ledger
from tests.replicas.site import Replica, Site, now, site

_KEPT, _NEW = 45.0, 5.0
"""Seconds after which an owner is given up: one on whose connection it is silent, one that can't be reached."""
_SLACK = 5.0


def scene(folder: Path, options: Options) -> Found:
    """Cut two of three replicas off from each other, and join them again."""
    with site(folder, 3) as made:
        return uvloop.run(_Cut(made).run())


class _Cut:
    def __init__(self, made: Site) -> None:
        self._site = made
        self._between, self._owner, self._other = made.replicas
        self._ledger = Ledger()
        self._found = Found()
        self._number = 0

    async def run(self) -> Found:
        async with aiohttp.ClientSession() as http:
            draw = random.Random(1)
            client = Client(http, self._at(self._owner), "2025", self._ledger, self._site.owner, draw)
            modern = Client(http, self._at(self._owner), "2026", self._ledger, self._site.owner, draw)
            await client.begin()
            through = replace(client, url=self._at(self._between))
            await self._expect("before", through, "quick", ANSWERED)
            parked = Errand(modern, self._call("2026", "ask"), "s0", "parked")
            asked = (await parked.answer())["result"]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._running, replace(through))
                await anyio.sleep(0.5)
                # That one has the connection that rested: now there is another.
                await self._expect("beside a call that runs", replace(through), "quick", ANSWERED)
                self._site.switch.set(cuts=[(self._between.name, self._owner.name)])
                # The first finds a connection that rests, the second has to open one.
                tasks.start_soon(self._given_up, replace(through), "on a kept connection", _KEPT)
                await anyio.sleep(0.2)
                tasks.start_soon(self._given_up, replace(through), "on a new connection", _NEW)
                tasks.start_soon(self._round, modern, parked, asked)
                for _ in range(20):
                    for replica in (self._owner, self._other):
                        call = await replace(client, url=self._at(replica)).make(self._call("2025", "quick"))
                        if call.outcome != ANSWERED or call.ended - call.began > _SLACK:
                            self._found.faults.append(f"{replica.name} gave {call.outcome} meanwhile")
            self._site.switch.set()
            await self._expect("when the network is whole again", replace(client, url=through.url), "quick", ANSWERED)
        counts = await anyio.to_thread.run_sync(self._site.counts)
        for call in self._ledger.calls:
            begun, _ = counts.get(call.number, (0, 0))
            if call.wrong or begun != (call.outcome == ANSWERED):
                self._found.faults.append(f"call {call.number}: {call.outcome}, done {begun} times {call.wrong}")
        return self._found

    def _at(self, replica: Replica) -> str:
        return f"{replica.url}/mcp"

    def _call(self, era: str, kind: str) -> Call:
        self._number += 1
        return Call(self._number, era, kind)

    async def _expect(self, what: str, client: Client, kind: str, outcome: str) -> Call:
        call = await client.make(self._call("2025", kind))
        self._found.expect(what, call.outcome, outcome)
        return call

    async def _given_up(self, client: Client, what: str, seconds: float) -> None:
        call = await client.make(self._call("2025", "quick"), timeout=100.0)
        self._found.expect(f"session, {what}", call.outcome, SESSION_GONE)
        took = call.ended - call.began
        self._found.told[f"session, {what}, seconds"] = round(took, 1)
        if not seconds - 1 < took < seconds + _SLACK:
            self._found.faults.append(f"{what} it took {took:.1f} s, not {seconds:g}")

    async def _running(self, client: Client) -> None:
        """A call whose stream passes through when the two are cut off: its client comes back through another."""
        call = self._call("2025", "long")

        async def go_elsewhere() -> None:
            await anyio.sleep(2.0)
            client.url = self._at(self._other)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go_elsewhere)
            await client.make(call, timeout=100.0)
        said = f"{call.outcome}, resumed {call.resumed}"
        self._found.expect("call whose stream passed through", said, "answered, resumed 1")

    async def _round(self, client: Client, parked: Errand, asked: dict[str, object]) -> None:
        """The next round of a call that waits: through the one that is cut off, then through another."""
        more = parked.next_round(asked)
        client.url = self._at(self._between)
        began = now()
        said = await parked.answer(more)
        text = said.get("error", {}).get("message", "")
        self._found.expect("call that waits", CALL_GONE if "requestState" in text else str(said), CALL_GONE)
        self._found.told["call that waits, seconds"] = round(now() - began, 1)
        client.url = self._at(self._other)
        said = await parked.answer(more)
        self._found.expect("the same through another replica", "result" in said, True)
