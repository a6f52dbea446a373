"""Runs tests with a mutant in place, quickly: each trial is a fork of this process, with the tests that run its line.

The tests of a room run once on unchanged code, which tells what each takes and which lines it runs (`lines`), and
which packages it imports: these are imported here, so that a trial need not. A mutant gets the tests that run its
statement, those of the module's own test file first, then the quickest. Nothing of the code under test is imported
in this process. Below: `lines`, `plugin`. Above: `run`.
"""

import ast
import contextlib
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation.operators import Mutant

_OPTIONS = ("-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "--timeout=0")
_LEARNING = 1800
_MEMORY = 6 << 30
"""Bytes of address space: a mutant that never ends its loop is not to take the machine's."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the tests of a room do on unchanged code."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[str, Sequence[str]]]
    """By path and line: the tests that run it; "" for what runs while modules are imported or for several tests."""

    def tests_of(self, path: str, lines: range) -> list[str]:
        """The tests that can notice a change in these lines: all that touch the module, where it belongs to no test."""
        by_line = self.lines[path]
        found = {test for line in lines for test in by_line.get(str(line), ())}
        if "" in found:
            found = {test for tests in by_line.values() for test in tests} or {*self.seconds}
        own = f"/test_{Path(path).stem}.py"
        return sorted(found - {""}, key=lambda test: (own not in test, self.seconds[test], test))


def learn(modules: Sequence[str], tests: Sequence[str]) -> Known:
    """Run the tests on unchanged code. Exits where they fail."""
    with tempfile.TemporaryDirectory() as folder:
        out, said = Path(folder, "lines.json"), Path(folder, "said.txt")
        env = {"LINES_OF": "\n".join(modules), "LINES_IN": str(out)}
        trial = start(["-p", "tests.mutation.lines", *tests], env, _LEARNING, said)
        if first_over([trial]).end() != 0:
            sys.exit(f"the tests fail on unchanged code:\n{said.read_text()[-4000:]}")
        told = json.loads(out.read_text())
    for name in told["installed"]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    return Known(told["seconds"], told["lines"])


@dataclass(frozen=True, slots=True)
class Trial:
    """Pytest in a fork, in a process group of its own."""

    pid: int
    over: int
    """Readable once it has ended."""
    until: float
    """By the monotonic clock."""

    def end(self) -> int | None:
        """How it ended; None where it was still running. Nothing that it started is left."""
        ended = bool(select.select([self.over], [], [], 0)[0])
        os.close(self.over)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return status if ended else None


def start(arguments: Sequence[str], env: Mapping[str, str], seconds: float, said: Path | None = None) -> Trial:
    """Run pytest for so many seconds at most. Its words go to `said`."""
    pid = os.fork()
    if pid:
        with contextlib.suppress(PermissionError):
            os.setpgid(pid, pid)
        return Trial(pid, os.pidfd_open(pid), time.monotonic() + seconds)
    status = 70
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        os.environ.update(env)
        null, out = os.open(os.devnull, os.O_RDONLY), os.open(said or os.devnull, os.O_WRONLY | os.O_CREAT)
        for there, number in ((null, 0), (out, 1), (out, 2)):
            os.dup2(there, number)
        status = int(pytest.main([*_OPTIONS, *arguments]))
        sys.stdout.flush()
    finally:
        os._exit(status)


def first_over(trials: Iterable[Trial]) -> Trial:
    """Wait for one that has ended, or whose time is up."""
    trials = list(trials)
    first = min(trials, key=lambda trial: trial.until)
    over = select.select([trial.over for trial in trials], [], [], max(0, first.until - time.monotonic()))[0]
    return next((trial for trial in trials if trial.over in over), first)


def lines_of(mutant: Mutant) -> range:
    """The lines of the statement that was changed; of one that holds others, those before them."""
    found = range(mutant.line, mutant.line + 1)
    for node in ast.walk(mutant.tree):
        if isinstance(node, ast.stmt) and node.lineno <= mutant.line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno or 0
            if last >= mutant.line or not body:
                found = range(node.lineno, max(last, node.lineno) + 1)
    return found
