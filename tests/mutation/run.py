"""Which small changes to the code no test notices: `make mutants`, `make mutants ONLY=agent BUDGET=600`.

Takes mutants of every package but the commands at random, runs the tests of the package that run the changed statement
with each in turn, and prints those that survive and the score of each package. A seed makes the choice, so that a run
can be had again. Nothing is written.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import groupby
from pathlib import Path

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.operators import Mutant, mutants
from tests.mutation.trying import NOT_TRIED, Known, Trial, attempt, first_over, learn, lines_of

ROOT = Path(__file__).parents[2]
GATEWAY = ROOT / "gateway"
TESTS = ROOT / "tests" / "gateway"
_LEFT_OUT = "cli"
"""The package of commands: they print, and what they print is held by tests that run them as processes."""
_ALSO = {
    # The ids of conversations are run by the tests of the turns that use them, and so is the engine.
    "context": ("tests/gateway/context", "tests/gateway/agent"),
    "engine": ("tests/gateway/engine", "tests/gateway/agent"),
    "http1": ("tests/gateway/proxy/transport",),
    "proxy/transport": ("tests/gateway/proxy/test_proxy_http.py",),
    "proxy/transport/oauth": ("tests/gateway/proxy/test_per_user.py",),
    "proxy/upstream": ("tests/gateway/proxy/test_proxy.py", "tests/gateway/proxy/test_tasks.py"),
    "toolcalls/schema": (
        "tests/gateway/toolcalls/grammar/test_ambiguity.py",
        "tests/gateway/toolcalls/grammar/test_keys.py",
        "tests/gateway/toolcalls/grammar/test_schemas.py",
        "tests/gateway/toolcalls/grammar/test_sets.py",
    ),
}
"""By package: tests that should notice a change in it, or in a package inside it, beside those that mirror it."""
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


def packages() -> Iterator[str]:
    """Give the paths of all packages below `gateway`, and "." for the modules at its top, but those left out."""
    for folder in sorted({path.parent for path in GATEWAY.rglob("*.py")}):
        name = folder.relative_to(GATEWAY).as_posix()
        if name.partition("/")[0] != _LEFT_OUT:
            yield name


def modules_of(package: str) -> list[str]:
    """The package's own modules: those of packages inside it are theirs."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (GATEWAY / package).glob("*.py"))


def named_tests(package: str) -> list[str]:
    """The tests that should notice a change: those of the folder that mirrors the package or what it stands in."""
    if package == ".":
        return sorted(path.relative_to(ROOT).as_posix() for path in TESTS.glob("test_*.py"))
    mirror = TESTS / package
    while not any(mirror.rglob("test_*.py")):
        mirror = mirror.parent
    also = (test for outer, tests in _ALSO.items() if f"{package}/".startswith(f"{outer}/") for test in tests)
    named = {mirror.relative_to(ROOT).as_posix(), *also}
    return sorted(test for test in named if not any(f"{test}/".startswith(f"{each}/") for each in named - {test}))


def changes(package: str, only: str) -> Iterator[Change]:
    """Give every mutant of the package's modules that match, but those that change nothing."""
    whole = only in ("", package) or package.startswith(f"{only}/")
    for name in modules_of(package):
        path = ROOT / name
        if whole or fnmatch(name, only):
            for number, mutant in enumerate(mutants(path.read_text(encoding="utf-8"))):
                if f"{name}: {mutant.said}" not in EQUIVALENT:
                    yield Change(name, number, mutant)


def score_of(known: Known, chosen: Sequence[Change], jobs: int, seconds: float) -> Score:
    """Try the mutants of one package in turn, for so many seconds."""
    over = time.monotonic() + seconds
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
            most = _LONGEST * sum(known.seconds[test] for test in tests) + 30
            running[attempt(change.path, change.number, change.mutant, tests, most)] = change
            continue
        trial = first_over(running)
        change = running.pop(trial)
        status = trial.end()
        if status in NOT_TRIED:
            score.survived(f"{change} (not tried: its tests ended with {status})")
        elif status == 0:
            score.survived(str(change))
    return score


def main(arguments: Sequence[str]) -> int:
    """Try mutants until the budget is spent; 1 where nothing matches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a package (proxy/upstream), a module's path, or a pattern of paths")
    parser.add_argument("--budget", type=float, default=1800, help="seconds of trying, shared by the packages")
    parser.add_argument("--most", type=int, default=100, help="mutants of each package, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    found = {package: list(changes(package, given.only)) for package in packages()}
    tried = [package for package in found if found[package]]
    for package in tried:
        random.Random(given.seed).shuffle(found[package])
    # What tests run is learned once for all packages that they try, and before the seconds count.
    for tests, group in groupby(sorted(tried, key=named_tests), key=named_tests):
        chosen = {package: found[package][: given.most] for package in group}
        known = learn(sorted({change.path for each in chosen.values() for change in each}), tests)
        for package, some in chosen.items():
            score = score_of(known, some, given.jobs, given.budget / len(tried))
            say(f"{package}: {score}, of {len(found[package])} mutants")
    return 0 if tried else 1


def say(line: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
