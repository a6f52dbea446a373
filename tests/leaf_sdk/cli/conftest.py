"""The command `codec-leaf`, run in this process or as it is installed, and a map to give it."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest

from leaf_sdk.cli import main
from leaf_sdk.testing import tiny_map_bytes

COMMAND = Path(sys.executable).parent / "codec-leaf"


class Ran(NamedTuple):
    """What one command line did."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object) -> Ran:
    """Run a command line by the command's own entry point."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with redirect_stdout(out), redirect_stderr(err), patch("sys.argv", ["codec-leaf", *map(str, arguments)]):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int)
    return Ran(code, out.getvalue(), err.getvalue())


def run_installed(*arguments: object) -> Ran:
    """Run a command line in a process of its own."""
    command = [COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def map_path(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    path.write_bytes(tiny_map_bytes())
    return path
