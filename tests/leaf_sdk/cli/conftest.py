"""The command `codec-leaf` as it is installed, and a map to give it."""

import subprocess
import sys
from pathlib import Path

import pytest

from leaf_sdk.testing import tiny_map_bytes

COMMAND = Path(sys.executable).parent / "codec-leaf"


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def map_path(tmp_path: Path) -> Path:
    path = tmp_path / "map.json"
    path.write_bytes(tiny_map_bytes())
    return path
