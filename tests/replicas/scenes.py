"""What is tried, one after the other, each on a site of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from tests.replicas.load import load
from tests.replicas.site import site


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    calls: int
    clients: int
    seed: int


@dataclass
class Found:
    """What came of a scene: for a person, for a file, and what must not be."""

    lines: list[str] = field(default_factory=list[str])
    told: dict[str, Any] = field(default_factory=dict[str, Any])
    faults: list[str] = field(default_factory=list[str])


def under_load(folder: Path, asked: Asked) -> Found:
    """Many calls while replicas are killed, drained and added every few seconds, over a network that loses frames."""
    with site(folder, 4, running=3) as made:
        made.switch.set(delay=0.001, loss=0.001)
        outcome = uvloop.run(load(made, asked.calls, asked.clients, asked.seed, (2.0, 5.0)))
    return Found(outcome.lines(), outcome.told(), outcome.faults)


SCENES: Mapping[str, Callable[[Path, Asked], Found]] = {"load": under_load}
