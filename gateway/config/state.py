"""Where the gateway keeps what it learns, and files there that only its own user may read."""

import os
import secrets
from pathlib import Path

from platformdirs import user_state_path

from gateway.errors import ConfigError


def state_folder() -> Path:
    """`codec-gateway` in the user's state folder; it may not exist yet."""
    return user_state_path("codec-gateway")


def replace_private(path: Path, data: bytes) -> None:
    """Write a file with mode 0600, and see that it is on the disk. Raises `ConfigError` if it can't be written."""
    try:
        replace_file(path, data, synced=True)
    except OSError as error:
        raise ConfigError(f"{path}: can't be written ({error.strerror}): check its folder") from None


def replace_file(path: Path, data: bytes, *, synced: bool = False) -> None:
    """Write a file with mode 0600. `synced`: see that it is on the disk. Raises `OSError`."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
            if synced:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
