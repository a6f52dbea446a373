"""The entry point of the command."""

import gc
import sys
from collections.abc import Callable

import pytest

from gateway import __main__
from gateway.cli import app, exit_codes


def test_garbage_is_looked_for_once_everything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    looking: list[bool] = []

    def load(_name: str) -> Callable[[], None]:
        looking.append(gc.isenabled())
        return lambda: looking.append(gc.isenabled())

    monkeypatch.setattr(app, "_load", load)
    monkeypatch.setattr(sys, "argv", ["codec-gateway", "token"])
    with pytest.raises(SystemExit) as ended:
        __main__.main()

    assert ended.value.code == exit_codes.OK
    assert looking == [False, True]
