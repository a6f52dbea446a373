"""What the console costs the calls of a gateway: CPU with two of its pages open, beside CPU with nobody signed in.

Turns calls of a tool that costs next to nothing, and answers over a stub of an engine, into the CPU time that one
gateway's process takes for each, in alternating pairs: somebody has signed in and has the conversations and the servers
open, as `static/live.js` asks for them, or has signed out. Writes `results/console.json`; `--short` prints instead.
Method: README.md.
"""

import asyncio
import re
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple

import anyio
import httpx2
import uvloop

from bench.mcp.links import connect
from bench.mcp.load import Ask, Client
from bench.path.stand import stub_engine
from bench.processes import Gateway, serving_gateway
from bench.record import summary, write
from codec_bench.processor import cpu_seconds

_ROUNDS: Final = 10
_SECONDS: Final = 6.0
"""Three times the pause of a page."""
_PAUSE: Final = 2.0
"""Seconds that `static/live.js` pauses."""
_OFTEN: Final = 8
"""How many times as often the pages are asked for here."""
_AT_ONCE: Final = 16
_IDS: Final = 32
"""Ids of an answer."""
_BEFORE: Final = 200
"""Conversations that are remembered before anything is measured: as many as the list has."""
_BAR: Final = 1.02
"""CPU per call with the pages open, divided by that with nobody signed in."""
_TOKEN: Final = "a-token-that-is-long-enough-for-a-console"
_PAGES: Final = ("/console/conversations", "/console/servers")
_CSRF: Final = re.compile(r'name="csrf" value="([^"]+)"')

Load = Callable[[float], Awaitable[int]]
"""Sends requests for so many seconds; returns how many were answered."""


@contextmanager
def _gateway(folder: Path) -> Generator[Gateway]:
    servers = {"light": {"command": sys.executable, "args": ["-m", "bench.mcp.upstream", "stdio"]}}
    with stub_engine() as engine:
        settings = f'[engine]\nurl = "{engine.url}"\n[console]\ntoken = "{_TOKEN}"\n'
        with serving_gateway(folder, servers, settings=settings) as gateway:
            yield gateway


class _Person:
    """Somebody with a browser."""

    def __init__(self, http: httpx2.AsyncClient, admin: str) -> None:
        """`admin`: the admin port's address."""
        self._http = http
        self._origin = {"origin": admin, "sec-fetch-site": "same-origin"}
        self.asked = 0

    @asynccontextmanager
    async def looking(self) -> AsyncGenerator[None]:
        """Be signed in, with both pages open."""
        answer = await self._http.post("/console/sign-in", data={"key": _TOKEN}, headers=self._origin)
        page = await self._http.get(_PAGES[0])
        if answer.status_code != 303 or (csrf := _CSRF.search(page.text)) is None:
            raise SystemExit(f"signing in to the console: {answer.status_code}\n{page.text[:500]}")
        async with anyio.create_task_group() as tasks:
            for path in _PAGES:
                tasks.start_soon(self._follow, path)
            yield
            tasks.cancel_scope.cancel()
        await self._http.post("/console/sign-out", data={"csrf": csrf[1]}, headers=self._origin)
        self._http.cookies.clear()

    async def _follow(self, path: str) -> None:
        shown: dict[str, str] = {}
        while True:
            answer = await self._http.get(path, headers={"sec-fetch-site": "same-origin", **shown})
            if answer.status_code not in (200, 304):
                raise ConnectionError(f"{path} answers {answer.status_code}")
            shown = {"if-none-match": answer.headers["etag"]}
            self.asked += 1
            await anyio.sleep(_PAUSE / _OFTEN)


async def _calls(gateway: Gateway) -> Load:
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    clients = [Client([await connect(host, int(port), "/mcp")], "handshake") for _ in range(_AT_ONCE)]
    for client in clients:
        await client.begin()

    async def ask(seconds: float) -> int:
        return sum(map(len, await asyncio.gather(*(client.run(Ask("call", 100, 1), seconds) for client in clients))))

    return ask


def _answers(http: httpx2.AsyncClient) -> Load:
    numbers = count()

    async def one() -> None:
        asked = [{"role": "user", "content": f"Tell me a story of {next(numbers)} lighthouses."}]
        fields = {"model": "any", "messages": asked, "max_tokens": _IDS, "temperature": 0}
        answer = await http.post("/v1/chat/completions", json=fields)
        if answer.status_code != 200:
            raise SystemExit(f"the gateway answers {answer.status_code}: {answer.text[:500]}")

    async def ask(seconds: float) -> int:
        until, done = perf_counter() + seconds, count()

        async def work() -> None:
            while perf_counter() < until:
                await one()
                next(done)

        await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
        return next(done)

    return ask


class _Pair(NamedTuple):
    """CPU microseconds of each answer, and how many times as often as a browser would the pages were asked for."""

    looking: float
    alone: float
    times: float


async def _cost(pid: int, load: Load, seconds: float) -> float:
    """Return the gateway's CPU time per answer, in microseconds."""
    began = cpu_seconds(pid)
    done = await load(seconds)
    return (cpu_seconds(pid) - began) / done * 1e6


async def _measure(gateway: Gateway, rounds: int, seconds: float) -> dict[str, Any]:
    pid = gateway.running.pid
    limits = httpx2.Limits(max_connections=_AT_ONCE)
    async with (
        httpx2.AsyncClient(base_url=gateway.url, timeout=60, trust_env=False, limits=limits) as http,
        httpx2.AsyncClient(base_url=gateway.admin, timeout=60, trust_env=False) as browser,
    ):
        loads = {"calls": await _calls(gateway), "answers": _answers(http)}
        person = _Person(browser, gateway.admin.rstrip("/"))
        # What the pages load on their first request is not part of a call, and neither is a growing list.
        answered = 0
        while answered < _BEFORE:
            answered += await loads["answers"](1.0)
        taken: dict[str, list[_Pair]] = {name: [] for name in loads}
        for turn in range(rounds + 1):
            for name, load in loads.items():
                cost: dict[bool, float] = {}
                asked = person.asked
                for looking in (True, False) if turn % 2 else (False, True):
                    async with person.looking() if looking else nullcontext():
                        cost[looking] = await _cost(pid, load, seconds)
                times = (person.asked - asked) / (len(_PAGES) * seconds / _PAUSE)
                # The first round warms up.
                taken[name] += [_Pair(cost[True], cost[False], times)] if turn else []
    return {name: _compared(pairs) for name, pairs in taken.items()}


def _compared(pairs: Sequence[_Pair]) -> dict[str, Any]:
    return {
        "pages open": summary([pair.looking for pair in pairs]),
        "nobody signed in": summary([pair.alone for pair in pairs]),
        "times as often": summary([pair.times for pair in pairs]),
        "ratio": summary([1 + (pair.looking / pair.alone - 1) / pair.times for pair in pairs]),
    }


def main(short: bool) -> None:
    """Measure, print the medians, and write the file, unless it is a short run."""
    with tempfile.TemporaryDirectory(prefix="codec-") as folder, _gateway(Path(folder)) as gateway:
        rounds, seconds = (1, _PAUSE) if short else (_ROUNDS, _SECONDS)
        results = uvloop.run(_measure(gateway, rounds, seconds))
    for load in ("calls", "answers"):
        print(f"{load:10}", *(f"{name} {row['median']:.3f} " for name, row in results[load].items()))
    if not short:
        print(
            write("console", ["uvloop", "httptools", "jinja2"], {"cpu_microseconds_each": results, "bar_ratio": _BAR})
        )


if __name__ == "__main__":
    main("--short" in sys.argv[1:])
