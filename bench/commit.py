"""An earlier commit's code, to measure the present code against.

Turns the name of a commit into a folder with its packages, for `PYTHONPATH`; their dependencies are those installed.
"""

import subprocess
import tarfile
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]


@contextmanager
def code_of(commit: str) -> Generator[Path]:
    """Provide the code of a commit, in a folder of its own."""
    packed = subprocess.run(
        ["git", "archive", commit, "gateway", "leaf_sdk"], cwd=_ROOT, check=True, capture_output=True
    )
    with (
        tempfile.TemporaryDirectory(prefix="codec-") as folder,
        tarfile.open(fileobj=BytesIO(packed.stdout)) as archive,
    ):
        archive.extractall(folder, filter="data")
        yield Path(folder)
