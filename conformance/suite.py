"""One run of the official suite: a leg and an address in, the outcome of every check out.

A leg is a version of the suite with the protocol version that it is asked to test. Reads the `checks.json` that the
suite writes for each scenario; what it prints is not parsed. It knows no gateway and no reference server:
`__main__.py`, above, says who is tested.
"""

import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from bench.toolchain import node, node_environment, npm_packages

_PACKAGE: Final = "@modelcontextprotocol/conformance"
_FOLDER: Final = re.compile(r"server-(?P<scenario>.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
_TIME: Final = 300.0


@dataclass(frozen=True, slots=True)
class Leg:
    """A version of the suite and what it is asked for."""

    name: str
    suite: str
    flags: tuple[str, ...]
    checks: int
    """How many checks the reference server passes; fewer means that something was not run."""


LEGS: Final = (
    Leg("0.1.16", "0.1.16", ("--suite", "all"), 44),
    Leg("2025-11-25", "0.2.0-alpha.12", ("--suite", "all", "--spec-version", "2025-11-25"), 84),
    Leg("2026-07-28", "0.2.0-alpha.12", ("--suite", "all", "--spec-version", "2026-07-28"), 152),
)


@dataclass(frozen=True)
class Outcome:
    """What one scenario said: every check with its status, as the suite wrote it."""

    checks: Sequence[Mapping[str, Any]]

    @cached_property
    def statuses(self) -> Counter[tuple[str, str]]:
        """How often each check ended how; some are made several times."""
        return Counter((str(check["id"]), str(check["status"])) for check in self.checks)

    def count(self, status: str) -> int:
        """How many checks ended so."""
        return sum(number for (_, ended), number in self.statuses.items() if ended == status)

    def __str__(self) -> str:
        """Give passed, failed and, where there are any, warnings, in a few characters."""
        warned = f" ({self.count('WARNING')} warned)" if self.count("WARNING") else ""
        return f"{self.count('SUCCESS')}/{self.count('FAILURE')}{warned}"


def run(leg: Leg, url: str, *, scenario: str | None = None) -> dict[str, Outcome]:
    """Run a leg, or one scenario of it, against the server at `url`; give scenario to outcome.

    Raises:
        SystemExit: the suite could not run at all.
    """
    modules = npm_packages(f"conformance-{leg.suite}", [f"{_PACKAGE}@{leg.suite}"])
    program = [str(node()), str(modules / _PACKAGE / "dist" / "index.js"), "server", "--url", url]
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        chosen = ["--scenario", scenario, *leg.flags[2:]] if scenario else leg.flags
        command = [*program, *chosen, "--output-dir", folder]
        said = subprocess.run(
            command, env=node_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIME, check=False
        )
        outcomes = dict(sorted(_read(Path(folder)).items()))
    if not outcomes and not scenario:
        raise SystemExit(f"{leg.name}: the suite left no checks:\n{(said.stderr or said.stdout).decode()[-3000:]}")
    return outcomes


def _read(folder: Path) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for path in folder.glob("*/checks.json"):
        name = _FOLDER.fullmatch(path.parent.name)
        if name is not None:
            found[name["scenario"]] = Outcome(json.loads(path.read_text(encoding="utf-8")))
    return found
