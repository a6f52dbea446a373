"""What an engine takes for its work, from the committed measurements of one.

Turns `results/prefill.json`, `cache.json` and `path.json` into rates, so that the simulation holds no rate that was not
measured; how large an engine is says the scene. Times are SmolLM2's on one thread of that machine: ratios between
policies follow from ratios between these rates.
"""

import json
from dataclasses import dataclass
from typing import Any

from bench.record import RESULTS


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of an engine's work."""

    prefill: float
    """To process an id of a prompt (prefill.json: 220 ids processed less 31, by the id)."""
    decode: float
    """To write an id (path.json, `real`: the engine's own events)."""
    restore: float
    """To take an id back from a slot file (cache.json, `times.swaps`)."""
    request: float
    """What the gateway puts before the first token (path.json, `first_ms`: gateway less engine)."""


def measured() -> Costs:
    """The rates of the committed results."""
    cache, path, prefill = _read("cache"), _read("path"), _read("prefill")["rows"]
    few, many = prefill["hidden, 11 ids"]["plain"], prefill["hidden, 200 ids"]["plain"]
    later = many["first_ms"]["median"] - few["first_ms"]["median"]
    swaps = cache["times"]["swaps"]["1000"]["restore_ms"]["median"]
    real, first = path["real"], path["first_ms"]
    engine = "the engine's own JSON events"
    return Costs(
        prefill=later / (many["processed"]["median"] - few["processed"]["median"]) / 1e3,
        decode=1 / real[engine]["tokens_a_second"]["median"],
        restore=swaps / 1000 / 1e3,
        request=(first["JSON events"]["median"] - first[engine]["median"]) / 1e3,
    )


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
