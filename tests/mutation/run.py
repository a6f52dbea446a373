"""Which small changes to the code no test notices: `make mutants`, `make mutants ONLY=agent BUDGET=600`.

Takes mutants of every package but the commands at random, runs the quick tests that run the changed statement with each
in turn, and prints those that survive and the score of each package. A seed makes the choice, so that a run can be had
again. Nothing is written.
"""

import argparse
import os
import random
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from tests.mutation.equivalent import EQUIVALENT
from tests.mutation.operators import Mutant, mutants
from tests.mutation.trying import NOT_TRIED, Known, Trial, attempt, first_over, learn, lines_of

ROOT = Path(__file__).parents[2]
GATEWAY = ROOT / "gateway"
TESTS = ROOT / "tests" / "gateway"
_LEFT_OUT = "cli"
"""The package of commands: they print, and what they print is held by tests that run them as processes."""
_APIS = ("serve/generation", "serve/messages", "serve/openai", "serve/responses")
_AGENT = ("agent", "agent/calls", "agent/generate", "agent/results")
_CONTEXT = ("context", "context/compose", "context/history", "context/memory")
_ENGINE = ("engine", "engine/pool", "engine/rendering", "engine/slots", "engine/start")
_PARSERS = ("toolcalls", "toolcalls/formats", "toolcalls/nodes", "toolcalls/stream", "toolcalls/values")
_SERVER = ("proxy/upstream/items", "proxy/upstream/session", "proxy/upstream/supervision")
_ALSO = {
    # Conversations are composed, remembered and read for the agent, and shown by the APIs.
    **dict.fromkeys((*_AGENT, *_CONTEXT), (*_AGENT, *_CONTEXT, *_APIS)),
    **dict.fromkeys(_APIS, _APIS),
    # Engines that follow a script are the agent's.
    **dict.fromkeys(_ENGINE, (*_AGENT, *_CONTEXT)),
    # One server is mostly tested through the proxy, by real ones.
    **dict.fromkeys(("proxy/upstream", *_SERVER), ("proxy", "proxy/upstream")),
    **dict.fromkeys(("proxy/transport/http", "proxy/transport/oauth"), ("proxy/transport/over_http",)),
    # One message shows what all of them do, and each node of a format also writes its grammar.
    **dict.fromkeys(_PARSERS, (*_PARSERS, "toolcalls/grammar")),
    "toolcalls/schema": ("toolcalls/grammar",),
    # What the services report is on the admin port's pages.
    "app": ("observe", "serve/admin"),
}
"""By package: others whose tests should notice a change in it."""
_PAGES = {"config": {"tests/pages/test_pages.py"}}
"""By package: the tests of pages that are made from its constants."""


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


def named_tests(package: str) -> set[str]:
    """The tests that should notice a change: those that mirror the package, or those nearby that import it."""
    mirrors = [TESTS / each for each in (package, *_ALSO.get(package, ()))]
    tests = (path for mirror in mirrors for path in mirror.rglob("test_*.py"))
    found = {path for path in tests if _mirror_above(path) in mirrors}
    if not mirrors[0].is_dir():
        names = (name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in modules_of(package))
        imports = re.compile(rf"^ *(?:from|import) (?:{'|'.join(map(re.escape, names))})(?![\w.])", re.MULTILINE)
        near = (TESTS / package.partition("/")[0]).rglob("test_*.py")
        found |= {path for path in near if imports.search(path.read_text(encoding="utf-8"))}
    return {path.relative_to(ROOT).as_posix() for path in found} | _PAGES.get(package, set())


def _mirror_above(test: Path) -> Path:
    """The innermost folder around the test that mirrors a package."""
    return next(folder for folder in test.parents if (GATEWAY / folder.relative_to(TESTS)).is_dir())


def changes(package: str, only: str) -> Iterator[Change]:
    """Give every mutant of the package's modules that match, but those that change nothing."""
    whole = only in ("", package) or package.startswith(f"{only}/")
    for name in modules_of(package):
        path = ROOT / name
        if whole or fnmatch(name, only):
            for mutant in mutants(path.read_text(encoding="utf-8")):
                if f"{name}: {mutant.said}" not in EQUIVALENT:
                    yield Change(name, mutant)


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
            if tests := known.tests_of(change.path, lines_of(change.mutant)):
                running[attempt(known, change.path, change.mutant, tests)] = change
            else:
                score.survived(f"{change} (no test runs it)")
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
    parser.add_argument("--only", default="", help="packages (http1,proxy/upstream), a module's path, or a pattern")
    parser.add_argument("--budget", type=float, default=1800, help="seconds of trying, shared by the packages")
    parser.add_argument("--most", type=int, default=100, help="mutants of each package, chosen by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    chosen: dict[str, list[Change]] = {}
    for package in packages():
        found = [change for only in given.only.split(",") for change in changes(package, only)]
        random.Random(given.seed).shuffle(found)
        if found:
            chosen[package] = found[: given.most]
            say(f"{package}: {len(chosen[package])} of {len(found)} mutants")
    if not chosen:
        return 1
    # What tests run is learned once for all packages, and before the seconds count.
    modules = {change.path for some in chosen.values() for change in some}
    known = learn(sorted(modules), sorted(set[str]().union(*map(named_tests, chosen))))
    say(f"{len(known.seconds)} tests that are quick")
    for package, some in chosen.items():
        say(f"{package}: {score_of(known, some, given.jobs, given.budget / len(chosen))}")
    return 0


def say(line: str) -> None:
    """Show a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
