"""What the three APIs cost side by side: first token and CPU per token of one stream: `python -m bench.apis`.

The engine is the stub of `bench.path`, the client reads bytes and looks for the first text. Chat completions of an
earlier commit can take part (`--against COMMIT`): its code runs beside this one, over the same engine. Rounds take
turns, so that a busy moment affects all alike, and everything is started several times: where a process happens to lie
in memory makes it some hundredths faster or slower. Writes `results/apis.json`; `--short` prints instead. Method:
README.md.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlsplit

import uvloop

from bench.commit import code_of
from bench.path.single import idle_share
from bench.path.stand import Engine, stub_engine
from bench.processes import Gateway, serving_gateway
from bench.record import summary, write
from codec_bench.processor import cpu_seconds

_ASK: Final = [{"role": "user", "content": "Tell me a long story about a lighthouse."}]
_WARM: Final = 5
_ALONE: Final = 2.0
"""Seconds for which an idle gateway is measured."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API, and how to recognise the first text of its streams."""

    path: str
    body: Mapping[str, Any]
    limit: str
    """The name of its field for the number of ids."""
    text: bytes

    def request(self, count: int) -> bytes:
        """Return a whole request for `count` ids."""
        fields = {**self.body, "model": "any", "stream": True, "temperature": 0, self.limit: count}
        body = json.dumps(fields).encode()
        head = (
            f"POST {self.path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nconnection: close\r\n"
        )
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


CHAT: Final = Api("/v1/chat/completions", {"messages": _ASK}, "max_tokens", b'"delta":{"content":')
APIS: Final = {
    "chat completions": CHAT,
    "responses": Api("/v1/responses", {"input": _ASK, "store": False}, "max_output_tokens", b"output_text.delta"),
    "messages": Api("/v1/messages", {"messages": _ASK}, "max_tokens", b"text_delta"),
}


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    starts: int = 5
    """How often the gateways are started; everything is measured each time."""
    rounds: int = 6
    tokens: int = 2000
    firsts: int = 80


async def first_ms(url: str, api: Api, count: int) -> float:
    """Return the milliseconds from the request to the first text; the whole answer is read."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    began, first, seen = perf_counter(), 0.0, b""
    writer.write(api.request(count))
    while data := await reader.read(1 << 16):
        if not first:
            seen += data
            first = perf_counter() if api.text in seen else 0.0
    writer.close()
    if not first:
        raise SystemExit(f"{api.path}: no text came: {seen[:500]!r}")
    return (first - began) * 1e3


@dataclass(slots=True)
class Taken:
    """What was measured for each way, by its name."""

    first_ms: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    us_per_token: dict[str, list[float]] = field(default_factory=dict[str, list[float]])


async def measure(ways: Mapping[str, tuple[Gateway, Api]], extent: Extent, drawn: Random, taken: Taken) -> None:
    """Measure both figures of every way, in turns and in another order each turn; the first few first texts warm up."""
    firsts = {name: taken.first_ms.setdefault(name, []) for name in ways}
    cpu = {name: taken.us_per_token.setdefault(name, []) for name in ways}
    idle = {gateway.running.pid: await idle_share(gateway, _ALONE) for gateway, _ in ways.values()}
    for turn in range(extent.firsts + _WARM):
        for name in drawn.sample(list(ways), len(ways)):
            gateway, api = ways[name]
            # The second request's time is not affected by what ran before, perhaps in another process.
            await first_ms(gateway.url, api, 2)
            first = await first_ms(gateway.url, api, 2)
            firsts[name] += [first] if turn >= _WARM else []
    for _ in range(extent.rounds):
        for name in drawn.sample(list(ways), len(ways)):
            gateway, api = ways[name]
            pid, began = gateway.running.pid, perf_counter()
            before = cpu_seconds(pid)
            await first_ms(gateway.url, api, extent.tokens)
            spent = cpu_seconds(pid) - before - idle[pid] * (perf_counter() - began)
            cpu[name].append(spent / extent.tokens * 1e6)


def run(extent: Extent, against: str | None) -> dict[str, Any]:
    """Start everything that takes part, and measure."""
    taken, drawn = Taken(), Random(1)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="codec-")))
        engine: Engine = stack.enter_context(stub_engine())
        code = None if against is None else stack.enter_context(code_of(against))
        settings = f'[engine]\nurl = "{engine.url}"\n'
        for start in range(extent.starts):
            with serving_gateway(folder / f"ours {start}", {}, settings=settings) as ours, ExitStack() as other:
                ways = {name: (ours, api) for name, api in APIS.items()}
                if code is not None:
                    before = serving_gateway(folder / f"before {start}", {}, settings=settings, code=code)
                    ways[f"chat completions at {against}"] = (other.enter_context(before), CHAT)
                uvloop.run(measure(ways, extent, drawn, taken))
    return {
        "against": against,
        "starts": extent.starts,
        "first_ms": {name: summary(samples) for name, samples in taken.first_ms.items()},
        "us_per_token": {name: summary(samples) for name, samples in taken.us_per_token.items()},
    }


def main(arguments: list[str]) -> None:
    """Measure, and write or print."""
    short = "--short" in arguments
    against = arguments[arguments.index("--against") + 1] if "--against" in arguments else None
    results = run(Extent(1, 2, 200, 5) if short else Extent(), against)
    if short:
        print(json.dumps(results, indent=1))
        return
    write("apis", ("codec-gateway", "uvloop", "uvicorn"), results)


if __name__ == "__main__":
    main(sys.argv[1:])
