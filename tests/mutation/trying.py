"""Runs tests with a mutant in place, quickly: the tests that run its statement, in a fork that has imported all.

The tests run once on unchanged code, which tells what each takes and which lines it runs (`learning`). Then this
process imports them, with all that they import. A trial is a fork of it in which one function has changed, or which
imports the project anew where the change is of what runs only at the import. A mutant gets the tests of its module's
own test file first, then the quickest, for `_ENOUGH` seconds.
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

from tests.mutation.learning import Learning
from tests.mutation.operators import Mutant
from tests.mutation.plugin import Unimportable, changed_function, import_anew, swap

# Of tests that run on each event loop, one shows what a mutant does; a real engine takes seconds to start in each fork.
_QUICK = ("-k", "not uvloop", "-m", "not engine and not tokenizers and not faults and not frameworks and not families")
_OPTIONS = ("-q", "--assert=plain", "-p", "no:cacheprovider", *_QUICK)
_LEARNING = 3600
_SLOW = 8
"""Seconds over which a test is left out: a promise that only such tests hold takes too long to be tried."""
_ENOUGH = 40
"""Seconds that the tests of one mutant take on unchanged code, at most."""
_LONGEST = 5
"""Times what a test takes on unchanged code, after which a mutant hangs: that is noticed too."""
_BROKEN = 70
NOT_TRIED = frozenset({int(pytest.ExitCode.USAGE_ERROR), int(pytest.ExitCode.NO_TESTS_COLLECTED), _BROKEN})
"""How a trial ends that says nothing about its mutant."""
_MEMORY = 6 << 30
"""Bytes of address space: a mutant that never ends its loop is not to take the machine's."""


@dataclass(frozen=True, slots=True)
class Known:
    """What tests do on unchanged code."""

    seconds: Mapping[str, float]
    lines: Mapping[str, Mapping[str, Sequence[str]]]
    """By path and line: the tests that run it; "" for what runs while modules are imported or for several tests."""

    def tests_of(self, path: str, lines: range) -> list[str]:
        """The tests that can notice a change in these lines: all that touch the module, where it belongs to no test."""
        by_line, own = self.lines[path], f"/test_{Path(path).stem}.py"
        found = {test for line in lines for test in by_line.get(str(line), ())}
        near, beside = found, ""
        if self.is_nobodys(path, lines):
            # What such a line defines, tests may use without running a line of the module: those beside it come first.
            beside = f"tests/{Path(path).parent.as_posix()}/"
            found = {test for tests in by_line.values() for test in tests} - {""} or {*self.seconds}
            # One that looks only at the module's constants runs none of its lines; that of a page too.
            found |= {test for test in self.seconds if own in test or test.startswith("tests/pages/")}
        else:
            # Python 3.11 does not trace what a coroutine runs after an exception was thrown into it.
            near = {test for line in function_at(Path(path), lines) for test in by_line.get(str(line), ())} - {""}
        known = (found | near) & self.seconds.keys()
        tests, left = list[str](), float(_ENOUGH)

        def key(test: str) -> tuple[bool, bool, bool, float, str]:
            return test not in found, own not in test, not test.startswith(beside), self.seconds[test], test

        for test in sorted(known, key=key):
            left -= self.seconds[test]
            if tests and left < 0:
                break
            tests.append(test)
        return tests

    def is_nobodys(self, path: str, lines: range) -> bool:
        """Whether these lines run at the import, or for a fixture that several tests share."""
        return any("" in self.lines[path].get(str(line), ()) for line in lines)


def learn(modules: Sequence[str], tests: Sequence[str]) -> Known:
    """Run the tests on unchanged code, and import them. Exits where that can't be done."""
    with tempfile.TemporaryDirectory() as folder:
        out, said = Path(folder, "lines.json"), Path(folder, "said.txt")
        # Far above it: a test that is cut off in the middle of its event loop can hang the whole run.
        limit = (f"--timeout={_LONGEST * _SLOW}", "-o", "timeout_func_only=true")
        trial = start([*limit, *tests], _LEARNING, plugin=lambda: Learning(modules, out), said=said)
        first_over([trial]).end()
        if not out.exists():
            sys.exit(f"the tests can't be run on unchanged code:\n{said.read_text()[-4000:]}")
        told = json.loads(out.read_text())
    _collected(tests)
    # Pytest escapes the ids that a test gives to its cases once more when it collects them again, as each fork does.
    named = _collected(tests)
    quick = {test: taken for test, taken in told["seconds"].items() if taken <= _SLOW and test in named}
    return Known(quick, told["lines"])


def _collected(tests: Sequence[str]) -> set[str]:
    """Import these tests, and give their names. Exits where that can't be done."""
    with contextlib.redirect_stdout(io.StringIO()) as words:
        if pytest.main([*_OPTIONS, "--collect-only", *tests]) != 0:
            sys.exit(f"the tests can't be imported:\n{words.getvalue()[-4000:]}")
    return {*words.getvalue().splitlines()}


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


def attempt(known: Known, path: str, mutant: Mutant, tests: Sequence[str]) -> Trial:
    """Run these tests with the mutant in place."""
    where, tree = Path(path).resolve(), mutant.tree
    # What ran at the import, as a function that makes a constant, would not run again.
    code = None if known.is_nobodys(path, lines_of(mutant)) else changed_function(where, tree)
    taken = [known.seconds[test] for test in tests]
    return start(
        ["-x", f"--timeout={_LONGEST * max(taken) + 5}", *tests],
        _LONGEST * sum(taken) + 30,
        plugin=lambda: swap(where, code) if code is not None else import_anew(path, tree),
    )


def start(arguments: Sequence[str], seconds: float, *, plugin: Callable[[], object], said: Path | None = None) -> Trial:
    """Run pytest in a fork for so many seconds at most, with what `plugin` makes there. Its words go to `said`."""
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
        made = plugin()
        # Pytest raises at its end, instead of giving a status, if a test that failed left something unclosed.
        status = int(pytest.ExitCode.TESTS_FAILED)
        status = int(pytest.main([*_OPTIONS, *arguments], [made] if made is not None else []))
    except Unimportable:
        status = int(pytest.ExitCode.TESTS_FAILED)
    finally:
        os._exit(status)


def first_over(trials: Iterable[Trial]) -> Trial:
    """Wait for one that has ended, or whose time is up."""
    trials = list(trials)
    first = min(trials, key=lambda trial: trial.until)
    over = select.select([trial.over for trial in trials], [], [], max(0, first.until - time.monotonic()))[0]
    return next((trial for trial in trials if trial.over in over), first)


def function_at(path: Path, lines: range) -> range:
    """The lines inside the innermost function that holds these; these, where none does."""
    found = lines
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = range(node.body[0].lineno, (node.end_lineno or 0) + 1)
            if lines.start in inside and (found is lines or len(inside) < len(found)):
                found = inside
    return found


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
