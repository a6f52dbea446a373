"""The time leaf's command where it does not start: in this process, without a start's imports."""

import os
import sys
from collections.abc import Callable

import pytest

from tests.conftest import Ran
from time_leaf.__main__ import main


@pytest.fixture
def start_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command to its end in this process: for what keeps it from starting."""

    def go(environment: dict[str, str] | None = None, *arguments: str) -> Ran:
        for name in [each for each in os.environ if each.startswith("CODEC_")]:
            monkeypatch.delenv(name)
        for name, value in (environment or {}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["codec-time-leaf", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ran(ended.value.code, printed.out, printed.err)

    return go
