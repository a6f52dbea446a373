"""Many streams at once from the stub engine: is anything lost, how late is a token, what does each process use?

Turns a number of streams into a row. A token's delay is from when the stub sent it to when the client had decoded it,
by the clock that both read. The streams begin one after the other within one second.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import Any, Final

import anyio

from bench.mcp.load import resident_bytes
from bench.path.client import Got, Stream, open_stream
from bench.path.single import check
from bench.path.stand import Engine
from bench.path.ways import PROTOBUF, Way
from bench.processes import Gateway
from bench.record import quantile
from codec_bench.processor import cpu_seconds

RATE: Final = 100
COUNTS: Final = (25, 50, 100, 150, 200)
TOKENS: Final = 600
_RAMP: Final = 1.0
_TIME: Final = 120.0


@dataclass(slots=True)
class _Usage:
    """CPU seconds of the three processes, so far."""

    gateway: float
    engine: float
    client: float

    @classmethod
    def now(cls, gateway: Gateway, engine: Engine) -> "_Usage":
        return cls(cpu_seconds(gateway.running.pid), cpu_seconds(engine.pid), process_time())


async def crowd(
    engine: Engine, gateway: Gateway, streams: int, tokens: int = TOKENS, way: Way = PROTOBUF, *, resident: int
) -> dict[str, Any]:
    """Run so many streams of so many tokens at 100 per second each, and sum up. Ends the run if an id is lost.

    Args:
        resident: bytes of the gateway's memory before the first crowd, as freed memory is not given back.
    """
    engine.sent()
    url = engine.url if way.of == "engine" else gateway.url
    opened = [await open_stream(url, way) for _ in range(streams)]
    before, began = _Usage.now(gateway, engine), perf_counter()
    with anyio.fail_after(_TIME):
        late = asyncio.create_task(_look(gateway, tokens / RATE))
        await _ask_all(opened, way, tokens)
        got: list[Got] = [await stream.done for stream in opened]
    wall, after = perf_counter() - began, _Usage.now(gateway, engine)
    sent = engine.sent()
    for number, each in enumerate(got):
        check(each, way, number, tokens)
    delays = sorted(
        (there - left) * 1e3
        for number, each in enumerate(got)
        for there, left in zip(each.times, sent[number], strict=way.form != "json")
    )
    used = {
        "gateway": (after.gateway - before.gateway) / wall,
        "stub": (after.engine - before.engine) / wall,
        "client": (after.client - before.client) / wall,
    }
    return {
        "streams": streams,
        "tokens": len(delays),
        "p50_ms": round(quantile(delays, 0.5), 2),
        "p99_ms": round(quantile(delays, 0.99), 2),
        "max_ms": round(delays[-1], 2),
        "tokens_a_second": round(sum(each.a_second for each in got)),
        "gateway_us_per_token": round((after.gateway - before.gateway) / len(delays) * 1e6, 2),
        "cores": {name: round(share, 3) for name, share in used.items()},
        "kib_per_stream": round((await late - resident) / streams / 1024, 1),
    }


async def _ask_all(opened: Sequence[Stream], way: Way, tokens: int) -> None:
    began = anyio.current_time()
    for number, stream in enumerate(opened):
        await anyio.sleep_until(began + _RAMP * number / len(opened))
        stream.ask(way.request([number, RATE], tokens, temperature=0))


async def _look(gateway: Gateway, seconds: float) -> int:
    """Return the gateway's resident memory when all streams are open and most of each has passed."""
    await anyio.sleep(seconds)
    return resident_bytes(gateway.running.pid)
