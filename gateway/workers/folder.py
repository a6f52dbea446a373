"""The parent's directory: Unix sockets over which it and its workers talk, out of reach of other users."""

import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from gateway.errors import ConfigError

_LONGEST: Final = 80
"""Characters of the directory's path. The whole path of a Unix socket may have 107."""


@contextmanager
def socket_folder() -> Generator[Path]:
    """Create a directory that only its owner may enter, and remove it with the context. Raises `ConfigError`."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="codec-gateway-"))
    except OSError as error:
        raise ConfigError(
            f"workers need a directory for their sockets ({error}): set TMPDIR to one that can be written"
        ) from error
    try:
        if len(str(folder)) > _LONGEST:
            raise ConfigError(f"the path {str(folder)!r} is too long for sockets: set TMPDIR to a shorter one")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def admin_socket(folder: Path, number: int) -> Path:
    """The path of the socket on which a worker answers its parent's questions."""
    return folder / f"admin-{number}.sock"
