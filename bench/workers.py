"""What several workers cost: CPU per call of a gateway with two workers, compared with the same gateway as one process.

Turns calls of a tool that costs next to nothing into the CPU time of all processes of a gateway, including the parent
but not the servers, in alternating pairs. Over HTTP each worker asks the server itself; a server over stdio belongs to
the parent, so the extra cost of its calls is the hop between parent and worker. A busy process does more at a time and
needs less for each call, so over HTTP three loads are compared: one call at a time, the same load in all, and the same
load for each process. Writes `results/workers.json`.
"""

import asyncio
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import httpx2
import uvloop

from bench.mcp.links import connect
from bench.mcp.load import Ask, Client
from bench.processes import Gateway, free_port, running, serving_gateway, wait_for_port
from bench.record import summary, write
from codec_bench.processor import cpu_seconds

_ROUNDS: Final = 12
_SECONDS: Final = 1.5
_LOADS: Final = {"one at a time": (1, 1), "16 in all": (16, 16), "16 for each process": (32, 16)}
"""Connections to the gateway with two workers, and to the one without."""
_BAR: Final = 1.1
"""How many times the cost of one process a call may take, over HTTP."""
_HOP_BAR: Final = 60.0
"""How many more microseconds a call over stdio may cost."""


@dataclass(frozen=True, slots=True)
class Way:
    """A gateway, and the clients that ask it."""

    pids: tuple[int, ...]
    """Its processes."""
    clients: tuple[Client, ...]


@contextmanager
def _gateways(folder: Path) -> Generator[Mapping[str, Gateway]]:
    """Run the gateways, by server and number of workers."""
    port = free_port()
    program = [sys.executable, "-m", "bench.mcp.upstream"]
    servers: dict[str, dict[str, Any]] = {
        "http": {"url": f"http://127.0.0.1:{port}/mcp"},
        "stdio": {"command": program[0], "args": [*program[1:], "stdio"]},
    }
    with ExitStack() as stack:
        wait_for_port(stack.enter_context(running("server", [*program, str(port)])), port)
        found: dict[str, Gateway] = {}
        for name, server in servers.items():
            for workers in (1, 2):
                count = f"[serve]\nworkers = {workers}\n" if workers > 1 else ""
                settings = f'prefix = "never"\n{count}[engine]\nkind = "none"\n'
                gateway = serving_gateway(folder / f"{name}{workers}", {"light": server}, settings=settings)
                found[f"{name}, {workers}"] = stack.enter_context(gateway)
        yield found


def _pids(gateway: Gateway) -> tuple[int, ...]:
    status = httpx2.get(f"{gateway.admin}/status", trust_env=False).json()
    workers = cast("Sequence[Mapping[str, Any]]", status.get("workers", ()))
    return (gateway.running.pid, *(int(each["pid"]) for each in workers))


async def _clients(gateway: Gateway, era: str, connections: int) -> tuple[Client, ...]:
    """Return one client per connection, with a session of its own if the era has sessions."""
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    clients = [
        Client([await connect(host, int(port), "/mcp")], "handshake" if era == "2025-11-25" else "modern")
        for _ in range(connections)
    ]
    for client in clients:
        await client.begin()
    return tuple(clients)


async def _cost(way: Way) -> float:
    """Return the CPU time of the whole gateway per call, in microseconds."""
    began = sum(map(cpu_seconds, way.pids))
    calls = await asyncio.gather(*(client.run(Ask("call", 100, 1), _SECONDS) for client in way.clients))
    return (sum(map(cpu_seconds, way.pids)) - began) / sum(map(len, calls)) * 1e6


async def _measure(gateways: Mapping[str, Gateway]) -> dict[str, Any]:
    pairs = {
        f"{server}, {era}, {load}": (
            await _way(gateways[f"{server}, 2"], era, both),
            await _way(gateways[f"{server}, 1"], era, alone),
        )
        for server in ("http", "stdio")
        for era in ("2025-11-25", "2026-07-28")
        for load, (both, alone) in _LOADS.items()
        if server == "http" or load == "16 in all"
    }
    taken: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in pairs}
    for turn in range(_ROUNDS + 1):
        for name in sorted(pairs, reverse=turn % 2 == 1):
            order = (0, 1) if turn % 4 > 1 else (1, 0)
            for which in order:
                cost = await _cost(pairs[name][which])
                # The first round warms up.
                taken[name][which].extend([cost] if turn else [])
    for way in (way for pair in pairs.values() for way in pair):
        for client in way.clients:
            client.close()
    return {name: _compared(*costs) for name, costs in taken.items()}


async def _way(gateway: Gateway, era: str, connections: int) -> Way:
    return Way(_pids(gateway), await _clients(gateway, era, connections))


def _compared(two: list[float], one: list[float]) -> dict[str, Any]:
    pairs = list(zip(two, one, strict=True))
    return {
        "two workers": summary(two),
        "one process": summary(one),
        "ratio": summary([both / alone for both, alone in pairs]),
        "more": summary([both - alone for both, alone in pairs]),
    }


def main() -> None:
    """Measure, print the medians, and write the file."""
    with tempfile.TemporaryDirectory(prefix="codec-") as folder, _gateways(Path(folder)) as gateways:
        results = uvloop.run(_measure(gateways))
    for which, rows in results.items():
        print(f"{which:40}", *(f"{name} {row['median']:.3f} " for name, row in rows.items()))
    told = {"cpu_microseconds_a_call": results, "bar_ratio_http": _BAR, "bar_more_stdio": _HOP_BAR}
    print(write("workers", ["uvloop", "httptools"], told))


if __name__ == "__main__":
    main()
