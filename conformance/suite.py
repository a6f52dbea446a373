"""One run of the official suite: a leg and an address or a client in, the outcome of every check out.

A leg is a version of the suite with the protocol version that it is asked to test. In its server mode the suite is the
client; in its client mode it starts a server for each scenario, and the command that it is given is its client. Reads
the `checks.json` that the suite writes for each scenario; its printed output is not parsed. Knows neither the gateway
nor the reference server: `__main__.py` says what is tested.
"""

import json
import re
import shlex
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    """A version of the suite, and what it is asked to test."""

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


@dataclass(frozen=True, slots=True)
class ClientLeg:
    """A version of the suite in its client mode, and its scenarios for a client that signs in by itself.

    Those of `auth/` are about a person who signs in, and about secrets that a server's own metadata may send anywhere.
    """

    name: str
    suite: str
    flags: tuple[str, ...]
    scenarios: tuple[str, ...]
    checks: int
    """How many checks a client passes if it uses everything that is offered."""


_BOTH_ERAS: Final = ("tools_call", "json-schema-2020-12-preservation")
_HANDSHAKE: Final = ("initialize", "elicitation-sep1034-client-defaults", "sse-retry")
_MODERN: Final = (
    "http-custom-headers",
    "http-invalid-tool-headers",
    "http-standard-headers",
    "json-schema-ref-no-deref",
    "request-metadata",
    "sep-2322-client-request-state",
)
CLIENT_LEGS: Final = (
    ClientLeg("client 0.1.16", "0.1.16", (), ("tools_call", *_HANDSHAKE), 10),
    ClientLeg("client 2025-11-25", "0.2.0-alpha.12", ("--spec-version", "2025-11-25"), (*_BOTH_ERAS, *_HANDSHAKE), 20),
    ClientLeg("client 2026-07-28", "0.2.0-alpha.12", ("--spec-version", "2026-07-28"), (*_BOTH_ERAS, *_MODERN), 62),
)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one scenario: every check with its status, as the suite wrote it."""

    checks: Sequence[Mapping[str, Any]]

    @cached_property
    def statuses(self) -> Counter[tuple[str, str]]:
        """How often each check ended with each status; some are made several times."""
        return Counter((str(check["id"]), str(check["status"])) for check in self.checks)

    def count(self, status: str) -> int:
        """Return how many checks ended with this status."""
        return sum(number for (_, ended), number in self.statuses.items() if ended == status)

    def __str__(self) -> str:
        """Return passed, failed and, if there are any, warnings, in a few characters."""
        warned = f" ({self.count('WARNING')} warned)" if self.count("WARNING") else ""
        return f"{self.count('SUCCESS')}/{self.count('FAILURE')}{warned}"


def run(leg: Leg, url: str, *, scenario: str | None = None) -> dict[str, Outcome]:
    """Run a leg, or one scenario of it, against the server at `url`; return the outcomes by scenario.

    Raises:
        SystemExit: the suite could not run at all.
    """
    chosen = ["--scenario", scenario, *leg.flags[2:]] if scenario else leg.flags
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        said = _run(leg.suite, ["server", "--url", url, *chosen, "--output-dir", folder])
        outcomes = dict(sorted(_read(Path(folder)).items()))
    if not outcomes and not scenario:
        raise SystemExit(f"{leg.name}: the suite left no checks:\n{said[-3000:]}")
    return outcomes


def run_client(leg: ClientLeg, command: Sequence[str], *, scenario: str | None = None) -> dict[str, Outcome]:
    """Run a client leg, or one scenario of it, with this command as the client; return the outcomes by scenario."""
    outcomes: dict[str, Outcome] = {}
    for name in leg.scenarios if scenario is None else {scenario} & {*leg.scenarios}:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            flags = ["--scenario", name, *leg.flags, "--output-dir", folder]
            said = _run(leg.suite, ["client", "--command", shlex.join(command), *flags])
            written = list(Path(folder).glob("*/checks.json"))
            if not written:
                raise SystemExit(f"{leg.name}: the suite left no checks of {name!r}:\n{said[-3000:]}")
            outcomes[name] = Outcome(json.loads(written[0].read_text(encoding="utf-8")))
    return dict(sorted(outcomes.items()))


def _run(suite: str, words: Iterable[str]) -> str:
    """Run the suite; return what it printed."""
    modules = npm_packages(f"conformance-{suite}", [f"{_PACKAGE}@{suite}"])
    command = [str(node()), str(modules / _PACKAGE / "dist" / "index.js"), *words]
    said = subprocess.run(
        command, env=node_environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIME, check=False
    )
    return (said.stderr or said.stdout).decode(errors="replace")


def _read(folder: Path) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    for path in folder.glob("*/checks.json"):
        name = _FOLDER.fullmatch(path.parent.name)
        if name is not None:
            found[name["scenario"]] = Outcome(json.loads(path.read_text(encoding="utf-8")))
    return found
