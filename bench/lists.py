"""What an unchanged list of tools costs: many servers, and many tools of one server.

`python -m bench.lists` prints, for each shape, the CPU time of `tools/list` from the parsed request to the bytes of its
answer, in this process alone: the median and the least of the rounds. Servers are real processes over standard input
and output.
"""

import json
import statistics
import sys
from dataclasses import dataclass
from time import process_time

import uvloop

from gateway.config.gateway_config import GatewayConfig, LimitsConfig, UpstreamConfig
from gateway.observe.metrics import Metrics
from gateway.protocol.messages import encode_response
from gateway.proxy.caller import NOBODY_MODERN
from gateway.proxy.proxy import Proxy

SERVER = """
import json, sys
properties = {"query": {"type": "string", "description": "What to look for"}, "limit": {"type": "integer"}}
tools = [{"name": f"tool_{n}", "description": "Looks for what is asked for, and says where it stands. " * 2,
          "inputSchema": {"type": "object", "properties": properties, "required": ["query"]}}
         for n in range(int(sys.argv[1]))]
for line in sys.stdin:
    asked = json.loads(line)
    if asked.get("method") == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "serverInfo": {"name": "many", "version": "1"},
                  "capabilities": {"tools": {"listChanged": True}}}
    elif asked.get("method") == "tools/list":
        result = {"tools": tools}
    elif "id" in asked:
        error = {"code": -32601, "message": "unknown method"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@dataclass(frozen=True)
class Shape:
    """A number of servers, and the number of tools of each."""

    servers: int
    tools: int


SHAPES = (Shape(1, 10), Shape(1, 5_000), Shape(20, 50), Shape(200, 5), Shape(200, 25))
ROUNDS = 40


async def measured(shape: Shape) -> tuple[list[float], int]:
    """Return the milliseconds of each round, and the bytes of the answer."""
    servers = tuple(
        UpstreamConfig(name=f"s{n}", command=sys.executable, args=("-S", "-c", SERVER, str(shape.tools)))
        for n in range(shape.servers)
    )
    config = GatewayConfig(upstreams=servers, prefix="always", limits=LimitsConfig(start_timeout=120))
    async with Proxy(config, Metrics(), start_wait=120) as proxy:
        size, spent = 0, list[float]()
        for number in range(ROUNDS + 1):
            begun = process_time()
            answer = encode_response(number, await proxy.handle("tools/list", {}, NOBODY_MODERN))
            spent.append((process_time() - begun) * 1000)
            size = len(answer)
            assert answer.count(b'"inputSchema"') == shape.servers * shape.tools, json.loads(answer)
        return spent[1:], size


async def main() -> None:
    """Measure every shape."""
    print("| servers | tools of each | bytes | ms, median | ms, least |\n|---|---|---|---|---|")
    for shape in SHAPES:
        spent, size = await measured(shape)
        times = f"{statistics.median(spent):.3f} | {min(spent):.3f}"
        print(f"| {shape.servers} | {shape.tools} | {size:,} | {times} |", flush=True)


if __name__ == "__main__":
    uvloop.run(main())
