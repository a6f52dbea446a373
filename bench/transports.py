"""What one request to an MCP server costs the gateway's side of the transport: over a pipe, over HTTP in both eras.

Turns calls to a server that costs next to nothing into CPU time of this process per call, and writes
`results/transports.json`. No proxy, no client: only `stdio.py` and `http.py` of `gateway/proxy/transport/`, and httpx2
alone to show what a general client would cost. Variants take turns, so that a busy moment affects all alike. `make
bench-mcp` measures the whole gateway.
"""

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import httpx2
import uvloop

from bench.processes import free_port, running, wait_for_port
from bench.record import summary, write
from gateway.config.gateway_config import UpstreamConfig
from gateway.observe.logs import get_logger
from gateway.protocol.messages import encode_request, parse_message
from gateway.proxy.caller import NOBODY
from gateway.proxy.transport.http.http_transport import open_http, open_http_client
from gateway.proxy.transport.stdio.stdio_transport import open_stdio

_SERVER: Final = ("-m", "bench.mcp.upstream")
_BOUND: Final = 1 << 24
_ROUNDS: Final = 7
_CALLS: Final = 3000
_AT_ONCE: Final = (1, 32)
_PARAMS: Final[Mapping[str, Any]] = {"name": "text_100", "arguments": {"text": "x"}}

Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def _variants(port: int) -> AsyncGenerator[dict[str, Call]]:
    """Open every way to ask."""
    log = get_logger("bench")
    url = f"http://127.0.0.1:{port}/mcp"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        child = UpstreamConfig("light", command=sys.executable, args=(*_SERVER, "stdio"))
        pipe = await enter(open_stdio(child, NOBODY, line_bound=_BOUND, log=log))
        client = await enter(open_http_client())
        far = UpstreamConfig("light", url=url)
        handshake = await enter(open_http(far, NOBODY, bound=_BOUND, log=log, client=client))
        handshake.use_version("2025-11-25")
        await handshake.request("initialize", {"protocolVersion": "2025-11-25"})
        modern = await enter(open_http(far, NOBODY, bound=_BOUND, log=log, client=client))
        modern.use_version("2026-07-28")
        general = await enter(httpx2.AsyncClient(trust_env=False))

        async def ask_httpx2() -> object:
            headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
            body = encode_request(1, "tools/call", _PARAMS)
            return parse_message((await general.post(url, content=body, headers=headers)).content)

        yield {
            "stdio": lambda: pipe.request("tools/call", _PARAMS),
            "http 2025-11-25": lambda: handshake.request("tools/call", _PARAMS),
            "http 2026-07-28": lambda: modern.request("tools/call", _PARAMS),
            "httpx2 alone": ask_httpx2,
        }


async def _sample(call: Call, at_once: int, calls: int) -> float:
    """Return the CPU time of this process per call, in microseconds."""

    async def ask_again_and_again() -> None:
        for _ in range(calls // at_once):
            await call()

    began = time.process_time()
    await asyncio.gather(*(ask_again_and_again() for _ in range(at_once)))
    return (time.process_time() - began) / (calls // at_once * at_once) * 1e6


async def _measure(port: int) -> dict[str, Any]:
    samples: dict[str, dict[int, list[float]]] = {}
    async with _variants(port) as variants:
        for turn in range(_ROUNDS + 1):
            for name, call in variants.items():
                for at_once in _AT_ONCE:
                    cost = await _sample(call, at_once, _CALLS if "httpx2" not in name else _CALLS // 5)
                    # The first round warms up.
                    if turn:
                        samples.setdefault(name, {}).setdefault(at_once, []).append(cost)
    return {
        name: {f"{at_once} at once": summary(costs) for at_once, costs in by.items()} for name, by in samples.items()
    }


def main() -> None:
    """Measure, print the medians, and write the file."""
    port = free_port()
    with running("upstream", [sys.executable, *_SERVER, str(port)]) as server:
        wait_for_port(server, port)
        results = uvloop.run(_measure(port))
    for name, by in results.items():
        print(f"{name:18}", *(f"{which}: {costs['median']:7.1f} µs" for which, costs in by.items()))
    print(write("transports", ["uvloop", "httptools", "httpx2"], {"cpu_microseconds_a_call": results}))


if __name__ == "__main__":
    main()
