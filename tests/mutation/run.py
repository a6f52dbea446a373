"""Which small changes to the code no test notices: `make mutants`, `make mutants ONLY=agent BUDGET=600`.

Takes mutants of the modules in `GROUPS` at random, runs the tests of their room with each in turn, and prints those
that survive and the score of each room. A seed makes the choice, so that a run can be had again. Nothing is written.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from tests.mutation.operators import Mutant, mutants

ROOT = Path(__file__).parents[2]
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "limits": (("gateway/serve/auth/rate_limiter.py",), ("tests/gateway/serve/auth/test_rate_limiter.py",)),
    "deadlines": (("gateway/deadlines.py",), ("tests/gateway/test_deadlines.py",)),
    "agent": (("gateway/agent/*.py",), ("tests/gateway/agent",)),
    "engine": (("gateway/engine/*.py",), ("tests/gateway/engine", "tests/gateway/agent")),
    "http1": (("gateway/http1/*.py",), ("tests/gateway/http1", "tests/gateway/proxy/transport")),
    "wires": (
        ("gateway/proxy/transport/*.py",),
        ("tests/gateway/proxy/transport", "tests/gateway/proxy/test_proxy_http.py"),
    ),
}
"""For each room the modules that are changed, and the tests that should notice, quickest first."""
_LONGEST = 3
"""Times what the tests take on unchanged code, after which a mutant hangs: that is noticed too."""


@dataclass(slots=True)
class Score:
    """How many mutants of a room were tried, and those that no test noticed."""

    tried: int = 0
    survivors: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        noticed = self.tried - len(self.survivors)
        return f"{noticed} of {self.tried} noticed" + (f", {noticed / self.tried:.0%}" if self.tried else "")


@dataclass(frozen=True, slots=True)
class Trial:
    """One mutant with the tests that should notice it."""

    room: str
    path: str
    number: int
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.path}:{self.mutant.line}: {self.mutant.said}"


def run_tests(room: str, env: dict[str, str], timeout: float | None) -> bool:
    """Whether the room's tests pass."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not engine", "-p", "tests.mutation.plugin"]
    command += ["-p", "no:cacheprovider", *GROUPS[room][1]]
    try:
        ended = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **env}, timeout=timeout, capture_output=True, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def trials(only: str) -> Iterator[Trial]:
    """Give every mutant of the modules that match."""
    for room, (patterns, _) in GROUPS.items():
        for path in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            if only in ("", room, name) or fnmatch(name, only):
                for number, mutant in enumerate(mutants(path.read_text(encoding="utf-8"))):
                    yield Trial(room, name, number, mutant)


def times_of(rooms: Iterable[str]) -> dict[str, float]:
    """Give how long the tests of each room may take with a mutant. Exits where they fail on unchanged code."""
    longest: dict[str, float] = {}
    for room in rooms:
        began = time.monotonic()
        if not run_tests(room, {"MUTANT": ""}, None):
            sys.exit(f"the tests of {room} fail on unchanged code")
        longest[room] = _LONGEST * (time.monotonic() - began) + 10
    return longest


def main(arguments: Sequence[str]) -> int:
    """Try mutants until the budget is spent; 1 where nothing matches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a room, a module's path, or a pattern of paths")
    parser.add_argument("--budget", type=float, default=1800, help="seconds")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    chosen = parser.parse_args(arguments)
    waiting = list(trials(chosen.only))
    random.Random(chosen.seed).shuffle(waiting)
    longest = times_of(sorted({trial.room for trial in waiting}))
    scores = {room: Score() for room in longest}
    over = time.monotonic() + chosen.budget

    def survives(trial: Trial) -> bool | None:
        if time.monotonic() > over:
            return None
        return run_tests(trial.room, {"MUTANT": f"{trial.path}:{trial.number}"}, longest[trial.room])

    with ThreadPoolExecutor(chosen.jobs) as threads:
        for trial, survived in zip(waiting, threads.map(survives, waiting), strict=True):
            scores[trial.room].tried += survived is not None
            if survived:
                scores[trial.room].survivors.append(str(trial))
                say(f"survived: {trial}")
    for room, score in scores.items():
        say(f"{room}: {score}, of {sum(trial.room == room for trial in waiting)} mutants")
    return 0 if scores else 1


def say(line: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
