"""`python -m bench.fleet`: 1 to 1,000 engines under every policy, and what happens where engines come and go.

Writes `results/fleet.json`; `--short` plays small scenes, prints and writes nothing. The same seed gives the same file
on any machine, but for its head. Scenes are divided over the cores.
"""

import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from typing import Any, Final

from bench.fleet.costs import measured
from bench.fleet.policies import POLICIES
from bench.fleet.simulation import Scene, simulate
from bench.fleet.traces import Crowd, draw
from bench.record import write

_SEED: Final = 1
_SECONDS: Final = 120.0
_EACH: Final = 20
"""Conversations for each engine."""
_SIZES: Final = (1, 4, 16, 64, 256, 1000)

Job = tuple[str, str, Scene, Crowd]


def scenes(sizes: tuple[int, ...]) -> dict[str, tuple[Scene, Crowd]]:
    """Every scene by its name."""
    found = {f"{n} engines": (Scene(n), Crowd(_EACH * n, _SECONDS)) for n in sizes}
    middle = sizes[-1] if len(sizes) < len(_SIZES) else 64
    crowd = Crowd(_EACH * middle, _SECONDS)
    half = tuple(_SECONDS / 2 + n * 0.1 for n in range(max(1, middle // 8)))
    herd = Crowd(_EACH * middle, _SECONDS, herd=_SECONDS / 2)
    found |= {
        f"{middle} engines, 8 gateways": (Scene(middle, 8), crowd),
        f"{middle} engines, 50 gateways": (Scene(middle, 50), crowd),
        f"{middle} engines, 8 gateways, conversations come to any": (Scene(middle, 8, stays=False), crowd),
        f"{middle} engines, an eighth is lost": (Scene(middle, losses=half), crowd),
        f"{middle} engines, an eighth more joins": (Scene(middle, joins=half), crowd),
        f"{middle} engines, half of all begin at once": (Scene(middle), herd),
    }
    return found


def play(job: Job) -> tuple[str, str, dict[str, Any]]:
    """One scene under one policy."""
    name, policy, scene, crowd = job
    return name, policy, simulate(scene, policy, draw(crowd, _SEED), measured(), _SEED)


def main() -> None:
    """Play all scenes and write or print what came of them."""
    short = "--short" in sys.argv
    chosen = scenes((1, 4) if short else _SIZES)
    # The longest first.
    jobs = [(name, policy, *chosen[name]) for name in reversed(chosen) for policy in POLICIES]
    rows: dict[str, dict[str, Any]] = {name: {} for name in chosen}
    with ProcessPoolExecutor(2) as pool:
        for name, policy, figures in pool.map(play, sorted(jobs, key=lambda job: -job[2].engines)):
            rows[name][policy] = figures
            print(f"{name:60} {policy:12} {figures['found_again']} {figures['first_s']}", flush=True)
    if not short:
        scene = asdict(Scene(1))
        write("fleet", ["codec-gateway"], {"seed": _SEED, "costs": asdict(measured()), "scene": scene, "rows": rows})


if __name__ == "__main__":
    main()
