"""What tests of engines share."""

from pathlib import Path

import pytest

from leaf_sdk.testing import tiny_map_bytes


@pytest.fixture
def map_file(tmp_path: Path) -> Path:
    """A small token map as a file."""
    path = tmp_path / "map.json"
    path.write_bytes(tiny_map_bytes())
    return path
