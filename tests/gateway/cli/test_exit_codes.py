"""What a command raises becomes one line on stderr and an exit code; what nobody foresaw keeps its traceback."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from gateway.cli import app, exit_codes
from gateway.errors import (
    ConfigError,
    EngineUnavailable,
    GatewayError,
    MapDiffers,
    RequestInvalid,
    UpstreamUnavailable,
)


@pytest.fixture
def run_raising(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], int]:
    """Runs a command that raises what the test says."""

    def run(error: BaseException) -> int:
        def command() -> None:
            """Fail."""
            raise error

        monkeypatch.setattr(app, "_load", {"token": command}.__getitem__)
        return app.run(["token"])

    return run


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("broken"), exit_codes.CONFIG),
        (EngineUnavailable("broken"), exit_codes.UNREACHABLE),
        (MapDiffers("broken", sample="", map_ids=[], engine_ids=[]), exit_codes.UNREACHABLE),
        (UpstreamUnavailable("broken", server="x"), exit_codes.UNREACHABLE),
        (RequestInvalid("broken"), exit_codes.FAILED),
        (ExceptionGroup("tasks", [ExceptionGroup("tasks", [ConfigError("broken")])]), exit_codes.CONFIG),
    ],
)
def test_error_of_ours_is_one_line_and_its_code(run_raising, capsys, error, code):
    assert run_raising(error) == code

    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "codec-gateway: broken\n"


def test_message_can_neither_format_nor_control_the_terminal(run_raising, capsys):
    run_raising(GatewayError("[bold]x[/bold] \x1b[31m\nsecond line " + "long " * 100))

    (line,) = capsys.readouterr().err.splitlines()
    assert "[bold]x[/bold]" in line
    assert "\x1b" not in line


def test_ctrl_c_is_130_and_silent(run_raising, capsys):
    assert run_raising(KeyboardInterrupt()) == exit_codes.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [RuntimeError("a fault of ours"), ExceptionGroup("tasks", [RuntimeError("a fault of ours")])]
)
def test_what_nobody_foresaw_is_not_hidden(run_raising, error):
    with pytest.raises(type(error)):
        run_raising(error)


def test_ctrl_c_before_anything_is_loaded_ends_without_a_traceback() -> None:
    program = """
import sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "gateway.cli.app":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from gateway.__main__ import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout, ended.stderr) == (exit_codes.INTERRUPTED, "", "")
