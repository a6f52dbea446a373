"""The directory in which an engine of ours keeps the states of its slots, and the notes and checks of its files.

The server reads and writes any file that it is told to, follows links and checks nothing. So the directory is ours
alone, names are random, and before a file is used it is checked to be the one that was written: not a link, ours, and
of the same length and digest. Blocking: a digest takes a millisecond per mebibyte, and must be computed in a thread.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from array import array
from base64 import b64decode, b64encode
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from gateway.engine.slots.slot import Checkpoints, reused
from gateway.errors import ConfigError

# What is known about a slot file, and the note that is stored beside it if it is kept.
#
# Turns a `SlotFile` into JSON and back; what is read is checked field by field, since it comes from a disk. It opens
# nothing and decides nothing.

NAME: Final = re.compile(r"[0-9a-f]{32}")
"""The name of every file: drawn at random, without characters that a file system or a server could misread."""


@dataclass(slots=True, eq=False)
class SlotFile:
    """A file that holds what a slot held."""

    name: str
    ids: list[int]
    """The ids in it, as far as they are known."""
    owner: str
    """The principal on whose behalf they were processed."""
    size: int
    """Bytes."""
    sha256: str
    held: int
    """Number of ids in it, as the engine counts: at the end there may be some that were not reported."""
    shared: bool = False
    """Whether it is a beginning that several conversations share."""
    checkpoints: Checkpoints = None
    """Where what it holds can be cut."""
    answer: str = ""
    """The name of the answer whose ids it holds; "" after a restart."""
    question: int = 0
    """Ids up to the user's message that this answers; 0: not known."""
    slot: int | None = None
    """The slot that holds its conversation at present."""
    used: int = 0
    """When its owner last asked for it, as a counter."""
    floor: float = 0.0
    """What had been given up last by then was worth this much."""
    density: float = 1.0
    """The part of its ids that is in no shared beginning; that of a shared beginning counts twice."""
    readers: int = 0
    """How many are about to restore it; while there are any it is not given up."""

    def reused(self, prompt: list[int]) -> int:
        """How many ids of a prompt need not be processed once it is restored."""
        return reused(self.ids, self.checkpoints, prompt)

    @property
    def rank(self) -> tuple[bool, float, int]:
        """The sort key for giving files up, lowest first: those that a slot holds anyway, then those that save least
        per byte, then the oldest."""
        return (self.slot is None, self.floor + self.density, self.used)


def write_note(file: SlotFile, engine: str) -> bytes:
    """The note beside a file; `engine`: the identity of the engine that wrote it."""
    ids = array("i", file.ids).tobytes()
    named = {name: getattr(file, name) for name in (*_FIELDS, "checkpoints")}
    return json.dumps({**named, "engine": engine, "ids": b64encode(ids).decode(), "ids_sha256": _digest(ids)}).encode()


def read_note(name: str, note: bytes, engine: str) -> SlotFile:
    """The file that a note describes. Raises `ValueError` for anything but a note of this file and engine."""
    read: Any = json.loads(note)
    given = cast("dict[str, Any]", read if isinstance(read, dict) else {})
    if given.get("engine") != engine or given.get("name") != name:
        raise ValueError("it is not a note about this file and engine")
    fields = {key: _typed(given.get(key), kind) for key, kind in _FIELDS.items()}
    ids = b64decode(_typed(given.get("ids"), str), validate=True)
    if _digest(ids) != given.get("ids_sha256"):
        raise ValueError("its ids are not those that were written")
    return SlotFile(ids=array("i", ids).tolist(), checkpoints=_checkpoints(given.get("checkpoints")), **fields)


_FIELDS: Final[dict[str, type]] = {
    "name": str,
    "owner": str,
    "size": int,
    "sha256": str,
    "held": int,
    "shared": bool,
}


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is not of type {kind.__name__}")
    return value


def _checkpoints(value: Any) -> Checkpoints:
    return None if value is None else tuple(_typed(each, int) for each in _typed(value, list))


def _digest(ids: bytes) -> str:
    return hashlib.sha256(ids).hexdigest()


Fault = Literal["gone", "link", "owner", "mode", "size", "digest", "note"]
"""Why a file is not used."""

_PREFIX: Final = "codec-gateway-slots-"
_UNLOCKED: Final = "codec-gateway-new-"
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - not a file of a known name: a folder of our own is made in it
_NOTE: Final = ".json"
_NOTE_MOST: Final = 64 * 1024 * 1024
_PIECE: Final = 1024 * 1024
_LEAST: Final = 1024 * 1024
"""Bytes of room below which slots are not kept in files."""
_ROOM: Final = 0.75
"""The part of a file system's free bytes that we may take."""


class FileUnfit(Exception):
    """A file must not be used: `fault` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault: Fault = fault


@dataclass(frozen=True, slots=True)
class SlotDirectory:
    """An open directory that is ours. `limit`: most bytes of all files in it."""

    path: Path
    limit: int
    kept: bool
    """Whether its files are kept for the next process, each with a note beside it."""
    handle: int

    def new_name(self) -> str:
        """A name for a new file."""
        return secrets.token_hex(16)

    def close_to_others(self, name: str) -> None:
        """Make a file that a server has written private, whatever that server's umask is. Raises `FileUnfit`."""
        with self._opened(name, closed=False) as handle:
            os.fchmod(handle, 0o600)

    def measure(self, name: str) -> tuple[int, str]:
        """Bytes and digest of a file. Raises `FileUnfit` unless it is a private regular file of ours."""
        with self._opened(name) as handle:
            digest, size = hashlib.sha256(), 0
            while piece := os.read(handle, _PIECE):
                digest.update(piece)
                size += len(piece)
        return size, digest.hexdigest()

    def check(self, file: SlotFile) -> None:
        """Check that a file is still the one that was written. Raises `FileUnfit`."""
        size, digest = self.measure(file.name)
        if size != file.size:
            raise FileUnfit("size")
        if digest != file.sha256:
            raise FileUnfit("digest")

    def note(self, file: SlotFile, engine: str) -> None:
        """Write the note of a file, if files are kept."""
        if not self.kept:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        handle = os.open(file.name + _NOTE, flags, 0o600, dir_fd=self.handle)
        with os.fdopen(handle, "wb") as note:
            note.write(write_note(file, engine))

    def remove(self, name: str) -> None:
        """Remove a file and its note, if they exist."""
        for each in (name, name + _NOTE):
            with _unhindered():
                os.unlink(each, dir_fd=self.handle)

    def known(self, engine: str) -> Iterator[SlotFile | Fault]:
        """The files that an identical engine has left here. Any other is removed, and yields its fault instead."""
        for name in {each.removesuffix(_NOTE) for each in _names(self.handle)}:
            if not NAME.fullmatch(name):
                continue
            try:
                yield self._noted(name, engine)
            except FileUnfit as unfit:
                self.remove(name)
                yield unfit.fault

    def _noted(self, name: str, engine: str) -> SlotFile:
        with self._opened(name + _NOTE) as handle:
            note = os.read(handle, _NOTE_MOST)
        try:
            file = read_note(name, note, engine)
        except (ValueError, RecursionError) as error:
            raise FileUnfit("note") from error
        with self._opened(name) as handle:
            if os.fstat(handle).st_size != file.size:
                raise FileUnfit("size")
        return file

    @contextmanager
    def _opened(self, name: str, *, closed: bool = True) -> Generator[int]:
        try:
            handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.handle)
        except OSError as error:
            raise FileUnfit("gone" if isinstance(error, FileNotFoundError) else "link") from error
        try:
            about = os.fstat(handle)
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
                raise FileUnfit("link")
            if about.st_uid != os.geteuid():
                raise FileUnfit("owner")
            if closed and about.st_mode & 0o077:
                raise FileUnfit("mode")
            yield handle
        finally:
            os.close(handle)


@contextmanager
def slot_directory(wanted: str, limit: int) -> Generator[SlotDirectory | None]:
    """The directory for slot files, locked for as long as the context lasts.

    Args:
        wanted: `auto`: a new one, removed at the end; `off`: none; or the path of one that is kept.
        limit: bytes of all files; less if the file system has no room for them.

    Raises `ConfigError` for a path that can't be used for this.
    """
    if wanted == "off" or limit <= 0:
        yield None
    elif wanted == "auto":
        with _own_directory(limit) as directory:
            yield directory
    else:
        with _opened_directory(Path(wanted)) as handle:
            taken = sum(os.stat(name, dir_fd=handle, follow_symlinks=False).st_size for name in _names(handle))
            yield SlotDirectory(Path(wanted), min(limit, _room(Path(wanted)) + taken), True, handle)


@contextmanager
def _own_directory(limit: int) -> Generator[SlotDirectory | None]:
    places = [place for place in (_MEMORY, Path(tempfile.gettempdir())) if os.access(place, os.W_OK)]
    place = next((place for place in places if _room(place) >= limit), max(places, key=_room, default=None))
    if place is not None:
        _remove_left(place)
    if place is None or _room(place) < _LEAST:
        yield None
        return
    new = Path(tempfile.mkdtemp(prefix=_UNLOCKED, dir=place))
    with _opened_directory(new) as handle:
        # The name is given only after the lock: an unlocked directory of such a name is removed as left behind.
        path = new.rename(place / (_PREFIX + secrets.token_hex(8)))
        try:
            yield SlotDirectory(path, min(limit, _room(place)), False, handle)
        finally:
            shutil.rmtree(path, ignore_errors=True)


def _remove_left(place: Path) -> None:
    """Remove the directories of killed gateways: their locks are no longer held."""
    for path in place.glob(_PREFIX + "*"):
        try:
            with _opened_directory(path):
                shutil.rmtree(path, ignore_errors=True)
        except ConfigError:
            continue


@contextmanager
def _opened_directory(path: Path) -> Generator[int]:
    """Open a directory and lock it. It is created if it is missing."""
    with _unhindered():
        path.mkdir(mode=0o700)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise ConfigError(
            f"engine.slot_files {str(path)!r} can't be opened: {error}; name a directory for this gateway alone"
        ) from error
    try:
        about = os.fstat(handle)
        if about.st_uid != os.geteuid() or about.st_mode & 0o077:
            raise ConfigError(
                f"engine.slot_files {str(path)!r} holds conversations, but other users can open it: it must belong to "
                "the gateway's own user and have mode 0700"
            )
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"engine.slot_files {str(path)!r} is used by another gateway: give each gateway a directory of its own"
            ) from error
        yield handle
    finally:
        os.close(handle)


def _names(handle: int) -> list[str]:
    with os.scandir(handle) as entries:
        return [entry.name for entry in entries]


def _room(place: Path) -> int:
    """Bytes of a file system that we may take."""
    try:
        about = os.statvfs(place)
    except OSError:
        return 0
    return int(about.f_bavail * about.f_frsize * _ROOM)


@contextmanager
def _unhindered() -> Generator[None]:
    try:
        yield
    except OSError:
        return
