"""What just reading an engine's stream costs: the gateway's client of engines, without anything that uses the ids.

`python -m bench.path.reading URL` takes a line on standard input for each stream (number, rate, count, as JSON) and
answers with the number of ids read. `stand.py` starts it and looks at its CPU time.
"""

import json
import sys

import uvloop

from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.interface import Generated, GenerateRequest
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from leaf_sdk import open_map


async def _read(url: str) -> None:
    client = LlamaCpp(url, token_map=open_map(packaged_model()))
    # Nothing else runs here between two streams: a blocking read of standard input is fine.
    while line := sys.stdin.readline():
        number, rate, count = json.loads(line)
        read = 0
        async with client.generate(GenerateRequest([number, rate], 0, count, gather=True)) as events:
            async for event in events:
                read += len(event.ids) if isinstance(event, Generated) else 0
        print(read, flush=True)
    await client.aclose()


if __name__ == "__main__":
    uvloop.run(_read(sys.argv[1]))
