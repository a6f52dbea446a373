"""The directory of a parent: Unix sockets of what its workers and it have for each other, for nobody else."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.errors import ConfigError

_LONGEST: Final = 80
"""Characters: a Unix socket's whole path may have 107."""


@contextmanager
def socket_folder() -> Generator[Path]:
    """A new directory that its owner alone may enter; removed with what is in it. Raises `ConfigError`."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="codec-gateway-"))
    except OSError as error:
        raise ConfigError(f"workers need a directory for their sockets ({error}): set TMPDIR to one") from error
    try:
        if len(str(folder)) > _LONGEST:
            raise ConfigError(f"{str(folder)!r} is too long a path for sockets: set TMPDIR to a directory of a shorter")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def admin_socket(folder: Path, number: int) -> Path:
    """Where a worker answers its parent's questions."""
    return folder / f"admin-{number}.sock"
