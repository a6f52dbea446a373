"""What a call that another replica answers costs: CPU of both replicas together, compared with a direct call.

Turns one session of 2025-11-25 in one of two replicas into calls of a tool that costs next to nothing, sent directly
and through the other replica, in alternating pairs, and writes `results/replicas.json`. The bar is on what a call costs
more for being sent on.
"""

import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.mcp.links import HttpLink, connect
from bench.mcp.load import Ask, Client
from bench.processes import Gateway, free_port, serving_gateway
from bench.record import summary, write
from codec_bench.processor import cpu_seconds

_ROUNDS: Final = 9
_SECONDS: Final = 1.5
_AT_ONCE: Final = (1, 16)
_BAR: Final = 300.0
"""Microseconds."""


@contextmanager
def _replicas(folder: Path) -> Generator[tuple[Gateway, Gateway]]:
    """Run two replicas, each with a server of its own."""
    key = folder / "key"
    key.write_text("0123456789abcdef" * 4, encoding="utf-8")
    server = {"light": {"command": sys.executable, "args": ["-m", "bench.mcp.upstream", "stdio"]}}
    with ExitStack() as stack:

        def one(name: str) -> Gateway:
            place = f'[replicas]\naddress = "127.0.0.1"\nport = {free_port()}\nkey_file = "{key}"\n'
            settings = f'prefix = "never"\n[engine]\nkind = "none"\n{place}'
            return stack.enter_context(serving_gateway(folder / name, server, settings=settings))

        yield one("owner"), one("other")


async def _links(gateway: Gateway) -> list[HttpLink]:
    host, _, port = gateway.url.removeprefix("http://").rpartition(":")
    return [await connect(host, int(port), "/mcp") for _ in range(max(_AT_ONCE))]


async def _cost(client: Client, at_once: int, gateways: tuple[Gateway, ...]) -> float:
    """Return the CPU time of all replicas per call, in microseconds."""
    began = sum(cpu_seconds(each.running.pid) for each in gateways)
    calls = len(await client.run(Ask("call", 100, at_once), _SECONDS))
    return (sum(cpu_seconds(each.running.pid) for each in gateways) - began) / calls * 1e6


async def _measure(owner: Gateway, other: Gateway) -> dict[str, Any]:
    direct = Client(await _links(owner), "handshake")
    await direct.begin()
    ways = {"direct": direct, "sent on": direct.over(await _links(other))}
    samples = {at_once: {name: list[float]() for name in ways} for at_once in _AT_ONCE}
    for turn in range(_ROUNDS + 1):
        for at_once, taken in samples.items():
            for name in sorted(ways, reverse=turn % 2 == 1):
                cost = await _cost(ways[name], at_once, (owner, other))
                # The first round warms up.
                if turn:
                    taken[name].append(cost)
    for client in ways.values():
        client.close()
    return {f"{at_once} at once": _compared(taken) for at_once, taken in samples.items()}


def _compared(taken: dict[str, list[float]]) -> dict[str, Any]:
    more = [on - direct for on, direct in zip(taken["sent on"], taken["direct"], strict=True)]
    return {**{name: summary(costs) for name, costs in taken.items()}, "more": summary(more)}


def main() -> None:
    """Measure, print the medians, and write the file."""
    with tempfile.TemporaryDirectory(prefix="codec-") as folder, _replicas(Path(folder)) as gateways:
        results = uvloop.run(_measure(*gateways))
    for which, rows in results.items():
        print(
            f"{which:12}", *(f"{name} {row['median']:7.1f} µs " for name, row in rows.items()), f"(bar {_BAR:g} more)"
        )
    told = {"cpu_microseconds_a_call": results, "bar_more": _BAR}
    print(write("replicas", ["uvloop", "httptools", "cryptography"], told))


if __name__ == "__main__":
    main()
