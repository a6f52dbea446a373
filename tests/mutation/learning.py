"""Notes which tests run which lines, and how long each takes: a plugin for one run of pytest on unchanged code.

What runs while modules are imported, or for a fixture that several tests share, belongs to no test and stands under "".
A test that fails, or takes longer than the run's timeout, tells nothing of a mutant and is left out.
"""

import json
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import coverage
import pytest

_NOBODY = ""


class Learning:
    """Measures from its making, since the first conftest imports much of what is measured."""

    def __init__(self, paths: Sequence[str], out: Path) -> None:
        """`paths`: of the modules; `out`: the file that gets the answer as JSON."""
        self._paths = paths
        self._out = out
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._running = _NOBODY
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=list(paths))
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Give what the test runs to it."""
        # A test whose time is up in the middle of a call of the tracer takes that away.
        if sys.gettrace() is None:
            self._coverage.stop()
            self._coverage.start()
        began = time.perf_counter()
        self._running = item.nodeid
        self._coverage.switch_context(self._running)
        result = yield
        self._coverage.switch_context(_NOBODY)
        self._seconds[item.nodeid] = time.perf_counter() - began
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """Give what a shared fixture runs to no test."""
        shared = fixturedef.scope != "function"
        if shared:
            self._coverage.switch_context(_NOBODY)
        result = yield
        if shared:
            self._coverage.switch_context(self._running)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note what fails."""
        if report.failed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write what was learned."""
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {path: data.contexts_by_lineno(str(Path(path).resolve())) for path in self._paths}
        seconds = {test: taken for test, taken in self._seconds.items() if test not in self._failed}
        self._out.write_text(json.dumps({"seconds": seconds, "lines": lines}))
