"""The whole path with a real model: the same client asks llama.cpp's own server, and the gateway over that server.

Turns a running engine and gateway into one row per way: bytes sent, time to the first decoded token, tokens per second,
CPU of the gateway per token. The prompt is the same each time and its cache is warm for all; ways take turns.
"""

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

from bench.path.client import fetch
from bench.path.single import idle_share
from bench.path.stand import Engine
from bench.path.ways import ENGINE, WAYS, Way
from bench.processes import Gateway
from bench.record import summary
from codec_bench.processor import cpu_seconds

PROMPT: Final = "The history of the lighthouse"
TOKENS: Final = 128

Sample = dict[str, float]


async def rows(
    engine: Engine, gateway: Gateway, prompt: Sequence[int], rounds: int, tokens: int = TOKENS
) -> dict[str, Any]:
    """Measure every way, round after round, after one round that warms up."""
    idle = await idle_share(gateway)
    samples: dict[str, list[Sample]] = {way.name: [] for way in WAYS}
    said: set[str] = set()
    for turn in range(rounds + 1):
        for way in WAYS:
            sample = await _sample(engine, gateway, way, prompt, tokens, idle, said)
            if turn:
                samples[way.name].append(sample)
    if len(said) != 1:
        raise SystemExit(f"a greedy model said {len(said)} different things, expected one")
    return {
        name: {key: summary([sample[key] for sample in taken]) for key in taken[0]} for name, taken in samples.items()
    }


async def _sample(
    engine: Engine, gateway: Gateway, way: Way, prompt: Sequence[int], tokens: int, idle: float, said: set[str]
) -> Sample:
    url = engine.url if way.of == "engine" else gateway.url
    before, began = cpu_seconds(gateway.running.pid), perf_counter()
    got = await fetch(url, way, way.request(prompt, tokens, temperature=0))
    spent = cpu_seconds(gateway.running.pid) - before - idle * (perf_counter() - began)
    if way.form != "json":
        said.add(str(got.ids))
    sample = {
        "bytes": float(got.wire_bytes),
        "bytes_per_token": got.wire_bytes / tokens,
        "first_ms": got.first_ms,
        "tokens_a_second": (tokens - 1) / (got.times[-1] - got.times[0]) if len(got.times) > 1 else 0.0,
    }
    if way is not ENGINE:
        sample["gateway_us_per_token"] = spent / tokens * 1e6
    return sample
