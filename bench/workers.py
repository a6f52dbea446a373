"""What several workers cost: CPU a call of one gateway with two workers, beside the same gateway as one process.

Turns calls of a tool that costs next to nothing into the CPU time of all processes of a gateway, parent included and
servers not, in pairs that take turns. Over HTTP each worker asks the server itself; a server over stdio belongs to the
parent, so what its calls cost more is the hop between parent and worker. Writes `results/workers.json`.
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
from bench.mcp.load import Ask, Client, cpu_seconds
from bench.processes import Gateway, free_port, running, serving_gateway, wait_for_port
from bench.record import summary, write

_ROUNDS: Final = 12
_SECONDS: Final = 1.5
_AT_ONCE: Final = 16
_BAR: Final = 1.1
"""Of what one process takes, over HTTP."""
_HOP_BAR: Final = 60.0
"""Microseconds that a call over stdio may cost more."""


@dataclass(frozen=True, slots=True)
class Way:
    """One gateway that is asked, and by whom."""

    pids: tuple[int, ...]
    """Its processes."""
    clients: tuple[Client, ...]


@contextmanager
def _gateways(folder: Path) -> Generator[Mapping[str, Gateway]]:
    """By server and number of workers."""
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
    workers = cast(Sequence[Mapping[str, Any]], status.get("workers", ()))
    return (gateway.running.pid, *(int(each["pid"]) for each in workers))


async def _clients(gateway: Gateway, era: str) -> tuple[Client, ...]:
    """One a connection: with a session of its own, where its era has sessions."""
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    clients = [
        Client([await connect(host, int(port), "/mcp")], "handshake" if era == "2025-11-25" else "modern")
        for _ in range(_AT_ONCE)
    ]
    for client in clients:
        await client.begin()
    return tuple(clients)


async def _cost(way: Way) -> float:
    """CPU of the whole gateway a call, in microseconds."""
    began = sum(map(cpu_seconds, way.pids))
    calls = await asyncio.gather(*(client.run(Ask("call", 100, 1), _SECONDS) for client in way.clients))
    return (sum(map(cpu_seconds, way.pids)) - began) / sum(map(len, calls)) * 1e6


async def _measure(gateways: Mapping[str, Gateway]) -> dict[str, Any]:
    ways = {
        f"{name} {era}": Way(_pids(gateway), await _clients(gateway, era))
        for name, gateway in gateways.items()
        for era in ("2025-11-25", "2026-07-28")
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(_ROUNDS + 1):
        for name in sorted(ways, reverse=turn % 2 == 1):
            cost = await _cost(ways[name])
            # The first round warms up.
            if turn:
                taken[name].append(cost)
    for way in ways.values():
        for client in way.clients:
            client.close()
    return {name: _compared(taken, name) for name in taken if ", 2" in name}


def _compared(taken: Mapping[str, list[float]], name: str) -> dict[str, Any]:
    two, one = taken[name], taken[name.replace(", 2", ", 1")]
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
        print(f"{which:22}", *(f"{name} {row['median']:.3f} " for name, row in rows.items()))
    told = {"cpu_microseconds_a_call": results, "bar_ratio_http": _BAR, "bar_more_stdio": _HOP_BAR}
    print(write("workers", ["uvloop", "httptools"], told))


if __name__ == "__main__":
    main()
