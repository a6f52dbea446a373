"""What an engine takes for its work, from committed measurements of a real one.

Turns `results/scaling.json`, where `python -m bench.scaling --real` has written what it measured, and `cache.json` into
rates, so that the simulation holds no rate that was not measured. Times are SmolLM2's on one thread of that machine:
ratios between policies follow from ratios between these rates.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from bench.record import RESULTS
from gateway.engine.slots.engine_speed import Rates

_SWAP: Final = 2e-3
"""Seconds that a request to the engine takes, whatever it moves (`gateway/engine/slots/engine_speed.py`)."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of an engine's work."""

    prefill: float
    """To process one id of a prompt."""
    decode: float
    """For a pass that writes one id of one answer."""
    beside: float
    """How much longer each further answer makes such a pass."""
    move: float
    """To save one id to a slot file or to restore it, including the digest."""
    request: float
    """What the gateway adds before the engine's work."""

    def times(self, part: float) -> "Costs":
        """Return the costs of an engine that is slower by this factor."""
        return Costs(self.prefill * part, self.decode * part, self.beside * part, self.move, self.request)

    def step(self, answers: int) -> float:
        """Return the time of a pass that writes one id of each of so many answers."""
        return self.decode + (answers - 1) * self.beside


class SimulatedRates(Rates):
    """The rates by which the paging decides: the same costs, where an id stands for several."""

    def __init__(self, costs: Costs, grain: int) -> None:
        super().__init__()
        self._prefill, self._move = costs.prefill * grain, costs.move * grain

    def to_process(self, ids: int) -> float:
        """As said."""
        return ids * self._prefill

    def to_move(self, ids: int) -> float:
        """As said."""
        return _SWAP + ids * self._move if ids else 0.0

    def size(self, ids: int) -> int:
        """Return one byte per id."""
        return ids


def measured() -> Costs:
    """Return the rates of the committed results."""
    return Costs(**{name: each["value"] for name, each in _read("scaling")["costs"].items()})


def moving() -> tuple[float, str]:
    """Return the seconds to move an id, and where that was measured: 1,000 ids restored from a file, less 300."""
    back: dict[str, Any] = _read("cache")["times"]["back"]
    many, few = (back[ids]["restored_ms"]["median"] for ids in ("1000", "300"))
    return (many - few) / 700 / 1e3, "cache.json, times.back: what comes back by a file, 1,000 ids less 300"


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
