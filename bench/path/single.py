"""One stream at a time from the stub engine: what the gateway adds to the first token, and CPU per token.

Turns a running stub, a gateway over it and the two floors (a process that only reads, one that only passes bytes on)
into rows. What the gateway does when it is idle (it checks its engine every two seconds) is measured first and
subtracted. Rounds take turns.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any, Final

from bench.path.client import Got, fetch
from bench.path.stand import Engine, Reader, Relay
from bench.path.stub_events import ids_of
from bench.path.ways import ENGINE, JSON, PROTOBUF, Way
from bench.processes import Gateway
from bench.record import summary
from codec_bench.processor import cpu_seconds

COUNTS: Final[Mapping[int, int]] = {20: 60, 100: 300, 1000: 2000}
"""Tokens of one sample, by rate."""
_FIRSTS: Final = 100
_IDLE: Final = 4.0
_RATE: Final = 1000


async def first_tokens(engine: Engine, gateway: Gateway, tries: int = _FIRSTS) -> dict[str, Any]:
    """Measure the milliseconds from the request to the first decoded token, the ways taking turns."""
    samples: dict[str, list[float]] = {}
    for turn in range(tries + 5):
        for way in (ENGINE, JSON, PROTOBUF):
            got = await fetch(_url(way, engine, gateway), way, way.request([turn, _RATE], 2, temperature=0))
            # The first few warm up.
            if turn >= 5:
                samples.setdefault(way.name, []).append(got.first_ms)
    return {name: summary(taken) for name, taken in samples.items()}


async def idle_share(gateway: Gateway, seconds: float = _IDLE) -> float:
    """Return the CPU seconds per second of an idle gateway."""
    pid, began = gateway.running.pid, perf_counter()
    before = cpu_seconds(pid)
    await asyncio.sleep(seconds)  # noqa: TID251 - time itself is what is measured
    return (cpu_seconds(pid) - before) / (perf_counter() - began)


async def cpu_rows(
    gateway: Gateway, reader: Reader, relay: Relay, rounds: int, counts: Mapping[int, int] = COUNTS
) -> dict[str, Any]:
    """Measure CPU per token, in microseconds, by rate: the gateway in two forms, only reading, and only passing on."""
    idle = await idle_share(gateway)
    asked = [(gateway.url, gateway.running.pid, way, idle) for way in (JSON, PROTOBUF)]
    asked.append((relay.url, relay.pid, replace(ENGINE, name="passing on alone"), 0.0))
    samples: dict[str, dict[str, list[float]]] = {str(rate): {} for rate in counts}
    for turn in range(rounds):
        for rate, count in counts.items():
            row = samples[str(rate)]
            for url, pid, way, alone in asked:
                before, began = cpu_seconds(pid), perf_counter()
                got = await fetch(url, way, way.request([turn, rate], count, temperature=0))
                # Without what it does when idle.
                spent = cpu_seconds(pid) - before - alone * (perf_counter() - began)
                check(got, way, turn, count)
                row.setdefault(way.name, []).append(spent / count * 1e6)
            read = await asyncio.to_thread(reader.read, turn, rate, count)
            row.setdefault("reading alone", []).append(read / count * 1e6)
    rows = {rate: {name: summary(taken) for name, taken in row.items()} for rate, row in samples.items()}
    return {"idle_ms_a_second": round(idle * 1e3, 3), "us_per_token": rows}


def check(got: Got, way: Way, number: int, count: int) -> None:
    """End the run if an id is missing or wrong."""
    if way.form != "json" and (len(got.ids) < count or got.ids != list(ids_of(number)[: len(got.ids)])):
        raise SystemExit(f"{way.name}: {len(got.ids)} ids came, and not those that stream {number} holds")


def _url(way: Way, engine: Engine, gateway: Gateway) -> str:
    return engine.url if way.of == "engine" else gateway.url
