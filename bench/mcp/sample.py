"""One sample: a target is asked for a while, and the figures for that time."""

import asyncio

from bench.mcp.load import Ask
from bench.mcp.site import Target
from codec_bench.processor import cpu_seconds

Sample = dict[str, float]


async def sample(target: Target, ask: Ask, seconds: float) -> Sample:
    """Return calls per second, CPU time per call and two latencies.

    Raises:
        SystemExit: the target broke off.
    """
    before = cpu_seconds(target.pid) if target.pid is not None else 0.0
    began = asyncio.get_running_loop().time()
    try:
        latencies = sorted(await target.client.run(ask, seconds))
    except ConnectionError as error:
        raise SystemExit(f"{target.peer.name}, {target.topology}, {ask}: {error}") from None
    took = asyncio.get_running_loop().time() - began
    used = cpu_seconds(target.pid) - before if target.pid is not None else 0.0
    return {
        "calls_per_second": len(latencies) / took,
        "cpu_us": used / len(latencies) * 1e6,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[int(len(latencies) * 0.99)] * 1e3,
        "calls": float(len(latencies)),
    }
