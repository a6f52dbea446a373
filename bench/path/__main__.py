"""`python -m bench.path`: measure streams through the whole path, and write `results/path.json` and the wire's page.

`--short` measures a little of everything, prints what it found and writes nothing; `python -m bench.path single,crowd`
leaves out the other parts, and then nothing is written either. `make bench-wire` runs this after `bench.wire`.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.mcp.load import resident_bytes
from bench.path import crowd, real, scenes, single
from bench.path.stand import gateway_over, reading, real_engine, relaying, stub_engine
from bench.path.ways import ENGINE
from bench.record import write
from bench.wire.__main__ import publish
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import open_map

_PARTS: Final = ("single", "crowd", "handoff", "real", "loop")
_PACKAGES: Final = ("codec-gateway", "codec-leaf", "uvloop", "httptools", "uvicorn", "xllamacpp")
_SERVERS: Final = {"plain_time": {"command": sys.executable, "args": ["-m", "plain_time"]}}


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    rounds: int = 5
    crowd_rounds: int = 2
    tries: int = 40
    firsts: int = 100
    tokens: int = real.TOKENS
    crowds: tuple[int, ...] = crowd.COUNTS
    crowd_tokens: int = crowd.TOKENS
    rates: Mapping[int, int] = field(default_factory=lambda: dict(single.COUNTS))


FULL: Final = Extent()
SHORT: Final = Extent(1, 1, 3, 5, 12, (3,), 50, {1000: 100})


async def on_stub(folder: Path, extent: Extent, parts: frozenset[str]) -> dict[str, Any]:
    """Measure on the stub engine."""
    found: dict[str, Any] = {}
    with stub_engine() as engine, gateway_over(engine, folder) as gateway:
        if "single" in parts:
            with reading(engine) as reader, relaying(engine) as relay:
                found["first_ms"] = await single.first_tokens(engine, gateway, extent.firsts)
                found |= await single.cpu_rows(gateway, reader, relay, extent.rounds, extent.rates)
        if "crowd" in parts:
            tokens, resident = extent.crowd_tokens, resident_bytes(gateway.running.pid)
            found["crowd"] = [
                await crowd.crowd(engine, gateway, streams, tokens, resident=resident)
                for streams in extent.crowds * extent.crowd_rounds
            ]
            # What the stub and the client can do without anybody between them.
            most = extent.crowds[-1]
            found["crowd_direct"] = await crowd.crowd(engine, gateway, most, tokens, ENGINE, resident=resident)
        if "handoff" in parts:
            found["handoff"] = await scenes.handoff(gateway, open_map(packaged_model()), extent.tries)
    return found


async def on_model(folder: Path, extent: Extent, parts: frozenset[str]) -> dict[str, Any]:
    """Measure on the real engine."""
    found: dict[str, Any] = {}
    with real_engine() as engine, gateway_over(engine, folder, _SERVERS) as gateway:
        if "real" in parts:
            prompt = open_map(packaged_model()).encode(real.PROMPT)
            found["real"] = await real.rows(engine, gateway, prompt, extent.rounds, extent.tokens)
        if "loop" in parts:
            found["loop"] = scenes.loop(gateway, extent.rounds)
    return found


async def _measure(extent: Extent, parts: frozenset[str]) -> dict[str, Any]:
    results: dict[str, Any] = {"rounds": extent.rounds, "tokens": extent.tokens}
    with tempfile.TemporaryDirectory(prefix="codec-") as folder:
        if parts & {"single", "crowd", "handoff"}:
            results |= await on_stub(Path(folder) / "stub", extent, parts)
        if parts & {"real", "loop"}:
            results |= await on_model(Path(folder) / "model", extent, parts)
    return results


def main(arguments: list[str]) -> None:
    """Measure, and write or print."""
    short, only = "--short" in arguments, [each for each in arguments if not each.startswith("-")]
    parts = frozenset(only[0].split(",") if only else _PARTS)
    if unknown := parts - set(_PARTS):
        raise SystemExit(f"no part is called {sorted(unknown)}; there are {', '.join(_PARTS)}")
    results = uvloop.run(_measure(SHORT if short else FULL, parts))
    if short or only:
        print(json.dumps(results, indent=1))
        return
    write("path", _PACKAGES, results)
    publish()


if __name__ == "__main__":
    main(sys.argv[1:])
