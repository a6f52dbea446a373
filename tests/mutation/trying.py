"""Runs tests with a mutant in place, quickly: the tests that run its statement, in a fork that has imported all.

The tests of a package run once on unchanged code, which tells what each takes and which lines it runs (`lines`). Then
this process imports them, with all that they import. A trial is a fork of it in which one function has changed; a
change of what runs only at the import takes a process of its own. A mutant gets the tests of its module's own test file
first, then the quickest.
"""

import ast
import contextlib
import io
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mutation.operators import Mutant
from tests.mutation.plugin import changed_function, swap

_OPTIONS = ("-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "--timeout=0")
_LEARNING = 1800
_BROKEN = 70
NOT_TRIED = frozenset({int(pytest.ExitCode.USAGE_ERROR), int(pytest.ExitCode.NO_TESTS_COLLECTED), _BROKEN})
"""How a trial ends that says nothing about its mutant."""
_MEMORY = 6 << 30
"""Bytes of address space: a mutant that never ends its loop is not to take the machine's."""


@dataclass(frozen=True, slots=True)
class Known:
    """What the tests of a package do on unchanged code."""

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
    """Run the tests on unchanged code, and import them. Exits where they fail."""
    with tempfile.TemporaryDirectory() as folder:
        out, said = Path(folder, "lines.json"), Path(folder, "said.txt")
        env = {"LINES_OF": "\n".join(modules), "LINES_IN": str(out)}
        trial = start(["-p", "tests.mutation.lines", *tests], _LEARNING, env=env, said=said)
        if first_over([trial]).end() != 0:
            sys.exit(f"the tests fail on unchanged code:\n{said.read_text()[-4000:]}")
        told = json.loads(out.read_text())
    with contextlib.redirect_stdout(io.StringIO()) as words:
        if pytest.main([*_OPTIONS, "--collect-only", *tests]) != 0:
            sys.exit(f"the tests can't be imported:\n{words.getvalue()[-4000:]}")
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


def attempt(path: str, number: int, mutant: Mutant, tests: Sequence[str], seconds: float) -> Trial:
    """Run these tests with the mutant in place."""
    where = Path(path).resolve()
    code = changed_function(where, mutant.tree)
    if code is None:
        return start(["-p", "tests.mutation.plugin", *tests], seconds, env={"MUTANT": f"{path}:{number}"})
    return start(tests, seconds, first=lambda: swap(where, code))


def start(
    arguments: Sequence[str],
    seconds: float,
    *,
    first: Callable[[], None] | None = None,
    env: Mapping[str, str] | None = None,
    said: Path | None = None,
) -> Trial:
    """Run pytest for so many seconds at most: here, after `first`, or in a new process with `env`.

    Its words go to `said`.
    """
    pid = os.fork()
    if pid:
        return Trial(pid, os.pidfd_open(pid), time.monotonic() + seconds)
    status = _BROKEN
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        null, out = os.open(os.devnull, os.O_RDONLY), os.open(said or os.devnull, os.O_WRONLY | os.O_CREAT)
        for there, number in ((null, 0), (out, 1), (out, 2)):
            os.dup2(there, number)
        if first is None:
            command = [sys.executable, "-m", "pytest", *_OPTIONS, *arguments]
            os.execve(sys.executable, command, {**os.environ, **(env or {}), "PYTHONPATH": "."})
        first()
        status = int(pytest.main([*_OPTIONS, *arguments]))
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
