"""Whether the package with llama.cpp can be loaded, and what to install where it can't."""

import sys
from types import ModuleType

import pytest

from gateway.engine.embedded import child_process


def missing(monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    def refuse(_name: str) -> ModuleType:
        raise ImportError(words)

    monkeypatch.setattr("importlib.import_module", refuse)


def test_package_that_is_there_is_loaded(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    package = ModuleType("xllamacpp")
    monkeypatch.setitem(sys.modules, "xllamacpp", package)

    assert child_process.load() is package
    assert child_process.check() == 0
    assert capsys.readouterr().out == "the embedded engine can start\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "libgomp.so.1: cannot open shared object file: No such file",
            "'libgomp.so.1' is not installed: "
            "`apt-get install libgomp1` (Debian, Ubuntu), `dnf install libgomp` (Fedora)",
        ),
        (
            "libx.so.2: cannot open shared object file: No such file",
            "'libx.so.2' is not installed: install the package of this system that has it",
        ),
        ("bad magic", "this system can't load llama.cpp (the package xllamacpp): bad magic"),
    ],
)
def test_what_this_system_lacks_is_named(monkeypatch, capsys, words: str, said: str) -> None:
    missing(monkeypatch, words)

    assert child_process.check() == 3
    assert capsys.readouterr().err == f"the embedded engine can't start: {said}\n"
