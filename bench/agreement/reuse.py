"""Ids processed and reused: what the client of `bench/cache` counts, and what `codec-gateway bench` is told.

Turns conversations that outnumber an engine's slots into two counts of the same requests, one after the other: on the
gateway's embedded engine with slot files for half of them, and on a stock server with as much host cache. Each is
restarted for each count. Nothing here depends on time.
"""

import json
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Final
from urllib.request import urlopen

import uvloop

from bench.agreement.command import report_of
from bench.cache import engines, live
from bench.cache.scene import Scene, Shape
from bench.first_delta import process
from bench.processes import serving_gateway
from codec_bench.workload import prompt_text
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.slots.engine_speed import Rates
from leaf_sdk import TokenMap, open_map

_SCENE: Final = Scene(Shape("one preamble of 200, own 100", 1, 200, 100), talks=8, slots=2, turns=4, added=52)
_MIB: Final = 64
"""Half of the conversations' size at the end, with SmolLM2."""

Counts = dict[str, int]


def prompts() -> list[str]:
    """Return the prompts in the order in which they are sent: all conversations' first turns, then their second ones.

    None contains what the model answered: each client would send back its own answers, and both must ask the same.
    """
    scene, shape = _SCENE, _SCENE.shape
    preamble = prompt_text(Random("preamble"), shape.preamble)
    texts = [f"{preamble} {number} {prompt_text(Random(f'{number}'), shape.own)}" for number in range(scene.talks)]
    found: list[str] = []
    for turn in range(scene.turns):
        found += texts
        more = (prompt_text(Random(f"{number}/{turn}"), scene.added) for number in range(scene.talks))
        texts = [f"{text} {added}" for text, added in zip(texts, more, strict=True)]
    return found


async def own(opened: engines.Open, token_map: TokenMap, asked: Sequence[str]) -> Counts:
    """Count with the client of `bench/cache`."""
    counts = {"processed": 0, "reused": 0}
    async with opened(packaged_model(), token_map, _SCENE, _MIB) as side:
        for text in asked:
            _, timings = await live.generate(side, list(token_map.encode(text)), _SCENE.answer)
            counts["processed"] += timings.prompt_n
            counts["reused"] += timings.cache_n
    return counts


def told(url: str, folder: Path, asked: Sequence[str]) -> Counts:
    """Count with the command."""
    lines = ({"messages": [{"role": "user", "content": text}], "answer_tokens": _SCENE.answer} for text in asked)
    words = ["--requests", str(len(asked)), "--warmup", "0", "--seconds", "1800", "--timeout", "300"]
    report = report_of([url], lines, folder, *words)
    prompt = report["servers"][0]["prompt"]
    if prompt is None or prompt["told"] != len(asked):
        raise SystemExit(f"{url} told of {prompt and prompt['told']} of {len(asked)} prompts; nothing was compared")
    return {"processed": prompt["processed"], "reused": prompt["cached"]}


@contextmanager
def _gateway(folder: Path) -> Generator[str]:
    settings = f'[engine]\nkind = "embedded"\nmodel = "{packaged_model()}"\ncontext = {engines.context_of(_SCENE)}\n'
    settings += f"slots = {_SCENE.slots}\nthreads = 1\nslot_files_bytes = {_MIB * engines.MIB}\n"
    with serving_gateway(folder, {}, settings=settings) as gateway:
        urlopen(f"{gateway.admin}/healthz/ready", timeout=60).close()
        yield gateway.url


@contextmanager
def _stock(_: Path) -> Generator[str]:
    settings = {"model": str(packaged_model()), "context": engines.context_of(_SCENE), "cache_mib": _MIB}
    with process("codec_demo.plain_server", json.dumps({**settings, "threads": 1, "slots": _SCENE.slots})) as child:
        yield (child.stdout.readline() if child.stdout else "").strip()


def main() -> None:
    """Count and print."""
    token_map, asked = open_map(packaged_model()), prompts()
    sides: dict[str, tuple[engines.Open, Callable[[Path], AbstractContextManager[str]]]] = {
        "gateway": (partial(engines.ours, rates=Rates()), _gateway),
        "llama.cpp's server": (engines.stock, _stock),
    }
    for name, (opened, started) in sides.items():
        mine = uvloop.run(own(opened, token_map, asked))
        with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as url:
            its = told(url, Path(folder), asked)
        for count, ids in mine.items():
            print(f"{name:32} {f'ids {count}':24} {ids:10,} {its[count]:10,}   {its[count] / ids:.3f}")
