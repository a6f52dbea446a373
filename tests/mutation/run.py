"""Which small changes to the code no test notices: `make mutants`, `make mutants ONLY=agent BUDGET=600`.

Takes mutants of the modules in `GROUPS` at random, runs the tests of their package that run the changed statement with
each in turn, and prints those that survive and the score of each package. A seed makes the choice, so that a run can be
had again. Nothing is written.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.operators import Mutant, mutants
from tests.mutation.trying import Trial, attempt, first_over, learn, lines_of

ROOT = Path(__file__).parents[2]
GROUPS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "limits": (("gateway/serve/auth/rate_limiter.py",), ("tests/gateway/serve/auth/test_rate_limiter.py",)),
    "deadlines": (("gateway/deadlines.py",), ("tests/gateway/test_deadlines.py",)),
    "agent": (("gateway/agent/*.py",), ("tests/gateway/agent",)),
    "engine": (("gateway/engine/*.py",), ("tests/gateway/engine", "tests/gateway/agent")),
    "http1": (("gateway/http1/*.py",), ("tests/gateway/http1", "tests/gateway/proxy/transport")),
    "transport": (
        ("gateway/proxy/transport/**/*.py",),
        ("tests/gateway/proxy/transport", "tests/gateway/proxy/test_proxy_http.py"),
    ),
}
"""For each package the modules that are changed, and the tests that should notice."""
_LONGEST = 5
"""Times what the tests take on unchanged code, after which a mutant hangs: that is noticed too."""


@dataclass(slots=True)
class Score:
    """How many mutants of a package were tried, and those that no test noticed."""

    tried: int = 0
    survivors: int = 0

    def survived(self, what: str) -> None:
        """No test noticed this."""
        self.survivors += 1
        say(f"survived: {what}")

    def __str__(self) -> str:
        noticed = self.tried - self.survivors
        return f"{noticed} of {self.tried} noticed" + (f", {noticed / self.tried:.0%}" if self.tried else "")


@dataclass(frozen=True, slots=True)
class Change:
    """One mutant of a package's module."""

    path: str
    number: int
    mutant: Mutant

    def __str__(self) -> str:
        return f"{self.path}:{self.mutant.line}: {self.mutant.said}"


def changes(package: str, only: str) -> Iterator[Change]:
    """Give every mutant of the package's modules that match, but those that change nothing."""
    for path in sorted(path for pattern in GROUPS[package][0] for path in ROOT.glob(pattern)):
        name = path.relative_to(ROOT).as_posix()
        if only in ("", package, name) or fnmatch(name, only):
            for number, mutant in enumerate(mutants(path.read_text(encoding="utf-8"))):
                if f"{name}: {mutant.said}" not in EQUIVALENT:
                    yield Change(name, number, mutant)


def score_of(package: str, chosen: Sequence[Change], jobs: int, over: float) -> Score:
    """Try the mutants of one package in turn, until the time is over."""
    known = learn(sorted({change.path for change in chosen}), GROUPS[package][1])
    score = Score()
    waiting = list(reversed(chosen))
    running: dict[Trial, Change] = {}
    while running or (waiting and time.monotonic() < over):
        if waiting and len(running) < jobs and time.monotonic() < over:
            change = waiting.pop()
            score.tried += 1
            tests = known.tests_of(change.path, lines_of(change.mutant))
            if not tests:
                score.survived(f"{change} (no test runs it)")
                continue
            seconds = _LONGEST * sum(known.seconds[test] for test in tests) + 30
            running[attempt(change.path, change.number, change.mutant, tests, seconds)] = change
            continue
        trial = first_over(running)
        change = running.pop(trial)
        if trial.end() == 0:
            score.survived(str(change))
    return score


def main(arguments: Sequence[str]) -> int:
    """Try mutants until the budget is spent; 1 where nothing matches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a package, a module's path, or a pattern of paths")
    parser.add_argument("--budget", type=float, default=1800, help="seconds, shared by the packages")
    parser.add_argument("--most", type=int, default=100, help="mutants of each package, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    found = {package: list(changes(package, given.only)) for package in GROUPS}
    packages = [package for package in found if found[package]]
    for left, package in zip(range(len(packages), 0, -1), packages, strict=True):
        began = time.monotonic()
        random.Random(given.seed).shuffle(found[package])
        score = score_of(package, found[package][: given.most], given.jobs, began + given.budget / left)
        given.budget -= time.monotonic() - began
        say(f"{package}: {score}, of {len(found[package])} mutants")
    return 0 if packages else 1


def say(line: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
