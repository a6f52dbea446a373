"""What a real engine takes: SmolLM2 on one thread, embedded as the gateway embeds it.

Turns short generations of ids that nobody has asked for before into `Costs`: the least of several rounds, since other
work on the machine only adds. Several engines at once show what each takes while all of them work on one machine.
"""

import json
from collections.abc import Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any, Final

import anyio

from bench.record import RESULTS
from bench.scaling.costs import Costs, moving
from gateway.app.services import open_services
from gateway.config import EngineConfig, GatewayConfig
from gateway.engine.interface import GenerateRequest, GenerationEnd, Sampling, Timings
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import EngineUnavailable

_FEW: Final = 20
_MANY: Final = 220
_WRITTEN: Final = 40
_BESIDE: Final = 4
"""Answers that are written at the same time."""
_ROUNDS: Final = 8
_LETTERS: Final = "root ::= [a-zA-Z ,.0-9]+"
"""Allows neither an end of turn nor a character of several tokens, so that every answer has its full length."""


def _settings(engines: int) -> GatewayConfig:
    each = EngineConfig(kind="embedded", context=4096, slots=_BESIDE, threads=1, slot_files="off", cache_mib=0)
    if engines == 1:
        return GatewayConfig(engine=each)
    return GatewayConfig(engines={f"engine-{number}": each for number in range(engines)})


async def calibrated(engines: int = 1, rounds: int = _ROUNDS) -> dict[str, dict[str, Any]]:
    """Measure each constant: its value in seconds, and where it was measured."""
    samples: dict[str, list[float]] = {"few": [], "many": [], "alone": [], "together": []}
    async with open_services(_settings(engines)) as services:
        found = [status.ready for status in services.engines.statuses()]
        async with anyio.create_task_group() as tasks:
            for number, ready in enumerate(found):
                if ready is None:
                    raise EngineUnavailable(f"engine {number} is not there; nothing was measured")
                tasks.start_soon(_measure, ready, Random(number), rounds, samples)
    few, many, alone, together = (_least(each, engines) for each in samples.values())
    move, where = moving()
    found_here = {
        "prefill": (
            (many - few) / (_MANY - _FEW),
            f"a prompt of {_MANY} ids that nobody asked for before, less one of {_FEW}",
        ),
        "decode": (alone, f"an answer of {_WRITTEN} ids, by itself"),
        "beside": (max(together - alone, 0.0) / (_BESIDE - 1), f"{_BESIDE} such answers at once, less one by itself"),
        "move": (move, where),
        "request": (_request(), "path.json, first_ms: JSON events less the engine's own"),
    }
    return {name: {"value": round(value, 6), "from": source} for name, (value, source) in found_here.items()}


def _least(samples: Sequence[float], engines: int) -> float:
    """Return the least of the rounds; for several engines at once, the mean of theirs."""
    return fmean(sorted(samples)[:engines])


def costs_of(*measured: Mapping[str, Mapping[str, Any]]) -> Costs:
    """Return only the constants: the means of several measurements."""
    return Costs(**{name: round(fmean(each[name]["value"] for each in measured), 6) for name in measured[0]})


def _request() -> float:
    first = json.loads((RESULTS / "path.json").read_text(encoding="utf-8"))["first_ms"]
    return (first["JSON events"]["median"] - first["the engine's own JSON events"]["median"]) / 1e3


async def _measure(ready: ReadyEngine, random: Random, rounds: int, samples: dict[str, list[float]]) -> None:
    for _ in range(rounds):
        for name, size in (("few", _FEW), ("many", _MANY)):
            samples[name].append((await _generate(ready, random, size, 2)).prompt_seconds)
        samples["alone"].append(_written(await _generate(ready, random, _FEW, _WRITTEN)))
        together: list[Timings] = []

        async def one(found: list[Timings] = together) -> None:
            found.append(await _generate(ready, random, 4, _WRITTEN))

        async with anyio.create_task_group() as tasks:
            for _ in range(_BESIDE):
                tasks.start_soon(one)
        samples["together"].append(fmean(map(_written, together)))


def _written(timings: Timings) -> float:
    return timings.generate_seconds / (timings.generated_n - 1)


async def _generate(ready: ReadyEngine, random: Random, prompt: int, answered: int) -> Timings:
    ids = [random.randrange(1000, 40_000) for _ in range(prompt)]
    async with ready.slots.take(ids, "bench", alone=True) as place:
        request = GenerateRequest(ids, place.pinned, answered, Sampling(0, seed=1), _LETTERS)
        async with ready.engine.generate(request) as events:
            async for event in events:
                if isinstance(event, GenerationEnd):
                    return event.timings
    raise EngineUnavailable("a generation had no end; nothing was measured")
