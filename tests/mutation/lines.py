"""Notes which tests run which lines: `pytest -p tests.mutation.lines`, with `LINES_OF` and `LINES_IN` set.

`LINES_OF` are the modules' paths, one in each line, `LINES_IN` the file that gets the answer as JSON. What runs while
modules are imported, or for a fixture that several tests share, belongs to no test and stands under "".
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

_NOBODY = ""


class _Lines:
    """Measures one run of pytest."""

    def __init__(self, paths: list[str], out: Path) -> None:
        self._paths = paths
        self._out = out
        self._seconds: dict[str, float] = {}
        self._running = _NOBODY
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=paths)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.perf_counter()
        self._running = item.nodeid
        self._coverage.switch_context(self._running)
        result = yield
        self._coverage.switch_context(_NOBODY)
        self._seconds[item.nodeid] = time.perf_counter() - began
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        shared = fixturedef.scope != "function"
        if shared:
            self._coverage.switch_context(_NOBODY)
        result = yield
        if shared:
            self._coverage.switch_context(self._running)
        return result

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {path: data.contexts_by_lineno(str(Path(path).resolve())) for path in self._paths}
        self._out.write_text(json.dumps({"seconds": self._seconds, "lines": lines}))


# At once, since the first conftest imports much of what is measured.
_MEASURED = _Lines(os.environ["LINES_OF"].splitlines(), Path(os.environ["LINES_IN"]))


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_MEASURED)
