"""Times and bytes: what the client of `bench/path` measures, and what `codec-gateway bench` does.

Turns one engine and a gateway over it into the figures that each reports for the same requests, and their ratio. The
two take turns, in rounds of a few requests, so that a busy machine is busy for both.
"""

import asyncio
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from bench.agreement.command import report_of
from bench.path.client import fetch
from bench.path.real import PROMPT
from bench.path.stand import Engine, gateway_over, real_engine
from bench.path.ways import ENGINE, JSON, PROTOBUF
from bench.processes import Gateway
from codec_bench.schedule import rotated
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk.fetch import map_bytes
from leaf_sdk.vocab import load_map

_WAYS: Final = {ENGINE: "", JSON: "", PROTOBUF: "#protobuf"}
_REQUESTS: Final = 10
"""Requests of each way in a round."""
_METRICS: Final = {"first_ms": "ms to the first token", "a_token_ms": "ms a token", "socket_bytes": "bytes"}

Figures = dict[str, dict[str, list[float]]]


async def own_round(engine: Engine, gateway: Gateway, prompt: list[int], tokens: int, figures: Figures) -> None:
    """Run one round of the client of `bench/path`, with its requests in the order in which the command sends them."""
    ways = [*_WAYS]
    for turn in range(_REQUESTS):
        for way in (ways[place] for place in rotated(len(ways), turn)):
            url = engine.url if way is ENGINE else gateway.url
            got = await fetch(url, way, way.request(prompt, tokens, temperature=0))
            row = figures[way.name]
            row["first_ms"].append(got.first_ms)
            row["a_token_ms"].append((got.times[-1] - got.times[0]) * 1e3 / (tokens - 1))
            row["socket_bytes"].append(got.wire_bytes)


def command_round(engine: Engine, gateway: Gateway, folder: Path, tokens: int, figures: Figures) -> None:
    """Run one round of the command."""
    line = {"messages": [{"role": "user", "content": PROMPT}], "answer_tokens": tokens}
    urls = {f"{engine.url if way is ENGINE else gateway.url}{form}": way.name for way, form in _WAYS.items()}
    report = report_of([*urls], [line], folder, "--requests", str(_REQUESTS), "--warmup", "1")
    names = dict(zip((server["url"] for server in report["servers"]), urls.values(), strict=True))
    for sample in report["samples"]:
        for metric in _METRICS:
            figures[names[sample["url"]]][metric].append(sample[metric])


def main(rounds: int, tokens: int) -> None:
    """Measure and print."""
    own: Figures = {way.name: {metric: [] for metric in _METRICS} for way in _WAYS}
    command: Figures = {way.name: {metric: [] for metric in _METRICS} for way in _WAYS}
    prompt = list(load_map(map_bytes(packaged_model())).encode(PROMPT))
    with tempfile.TemporaryDirectory() as name, real_engine() as engine, gateway_over(engine, Path(name)) as gateway:
        warm: Figures = {way.name: {metric: [] for metric in _METRICS} for way in _WAYS}
        asyncio.run(own_round(engine, gateway, prompt, 2, warm))
        for _ in range(rounds):
            asyncio.run(own_round(engine, gateway, prompt, tokens, own))
            command_round(engine, gateway, Path(name), tokens, command)
    for way in _WAYS:
        for metric, words in _METRICS.items():
            mine, its = median(own[way.name][metric]), median(command[way.name][metric])
            print(f"{way.name:32} {words:24} {mine:10.2f} {its:10.2f}   {its / mine:.3f}")
