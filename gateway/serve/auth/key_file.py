"""The file of the API keys: changed by one process at a time, followed by the running gateway.

`KeyFile` adds and revokes keys for the command line. `KeyRing` finds whose key a request carries, and looks at the
file's state at every request (one `stat`, 1.5 µs): a change takes effect at the next request, on every file system,
and no watcher has to be kept alive. A file that can't be used changes nothing, and the log says why. It knows no HTTP.
"""

import fcntl
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gateway.config.private_file import replace_private
from gateway.config.source import read_config_text
from gateway.errors import ConfigError, GatewayError
from gateway.observe.logs import get_logger
from gateway.serve.auth.identity import CredentialRefused, Identity
from gateway.serve.auth.keys import KeyRecord, check_name, parse_keys, render_keys

_TOO_OPEN: Final = 0o027
"""Mode bits that must not be set: others may not read the file, and only its owner may write it, since whoever can
write it can add a key. A group may read it: a container's secret is given that way to a process that does not own it.
"""

log = get_logger("serve")


class KeyFile:
    """`keys.toml`, as `codec-gateway keys` reads and writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> dict[str, KeyRecord]:
        """The keys by name; empty if there is no file. Raises `ConfigError`."""
        return load_keys(self.path) if self.path.exists() else {}

    def add(self, record: KeyRecord) -> None:
        """Add a key. Raises `ConfigError` if its name is taken or the file can't be written."""
        check_name(record.name)
        with self._alone():
            records = self.read()
            if record.name in records:
                raise ConfigError(
                    f"{self.path}: a key {record.name!r} already exists: revoke it, or choose another name"
                )
            self._write({**records, record.name: record}.values())

    def revoke(self, name: str) -> None:
        """Remove a key. The file stays even if it holds no keys: without it, callers might not be asked for one at all.

        Raises:
            ConfigError: there is no such key, or the file can't be written.
        """
        with self._alone():
            records = self.read()
            if name not in records:
                raise ConfigError(f"{self.path}: there is no key {name!r}; {_listed(records)}")
            self._write(record for other, record in records.items() if other != name)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Lock the folder, so that neither of two simultaneous changes is lost."""
        try:
            folder = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise ConfigError(f"{self.path}: its folder can't be opened ({error.strerror}): create it first") from None
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _write(self, records: Iterable[KeyRecord]) -> None:
        replace_private(self.path, render_keys(records).encode())


class KeyRing:
    """Finds who holds a key, and follows the changes of one key file."""

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one. Raises `ConfigError`: a gateway with an unusable key file does not start."""
        self._path = path
        self._seen = _state_of(path)
        self._known: dict[bytes, tuple[KeyRecord, Identity]] = {}
        self.in_use = self._seen is not None
        """Whether callers need a key: there is a key file, or there was one."""
        if self.in_use:
            self._adopt(load_keys(path))

    def find(self, digest: bytes) -> Identity | None:
        """Who holds the key with this SHA-256; None if there is no such key.

        Raises:
            CredentialRefused: the key has expired.
        """
        found = self._known.get(digest)
        if found is None:
            return None
        record, identity = found
        if record.expired(datetime.now(UTC)):
            raise CredentialRefused("expired", "the key has expired; ask for a new one")
        return identity

    def follow(self) -> None:
        """Pick up changes of the file. To be called before each `find`."""
        state = _state_of(self._path)
        if state == self._seen:
            return
        self._seen = state
        if state is None:
            self._known = {}
            log.warning("the key file is gone: no API key is accepted until it is back", path=str(self._path))
            return
        self.in_use = True
        try:
            self._adopt(load_keys(self._path))
        except GatewayError as error:
            log.warning("the key file was changed and can't be used; the old keys stay valid", reason=error.message)
        else:
            log.info("the key file was changed", path=str(self._path), keys=len(self._known))

    def _adopt(self, records: dict[str, KeyRecord]) -> None:
        self._known = {record.digest: (record, record.identity()) for record in records.values()}


def _listed(names: Iterable[str]) -> str:
    return f"the keys are {listed}" if (listed := ", ".join(names)) else "the file has no keys"


def load_keys(path: Path) -> dict[str, KeyRecord]:
    """The keys of a file that only its owner can change.

    Raises:
        ConfigError: others can read or change it, or it is not a key file.
    """
    try:
        found = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror}): check its permissions") from None
    if stat.S_ISDIR(found):
        raise ConfigError(f"{path}: a folder: name a file for the keys, such as keys.toml")
    mode = stat.S_IMODE(found)
    if mode & _TOO_OPEN:
        raise ConfigError(f"{path}: others can read or change this key file (mode {mode:04o}): chmod 600 it")
    return parse_keys(read_config_text(path), str(path))


def _state_of(path: Path) -> tuple[int, ...] | None:
    """A value that differs once the file has changed; None if there is no file."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a third faster than Path.stat, and asked at every request
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode
