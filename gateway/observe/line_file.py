"""A file that contains only whole lines, even if others move it away, cut it or fill its disk.

Appends lines to a file. If a write breaks off, it tells how many lines are in the file, and removes the part of a line
that could not be finished. The file is reopened when its name leads to another one (logrotate). It does not know what
the lines are.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG


class LineFile:
    """One file, opened for appending."""

    def __init__(self, path: Path) -> None:
        """Open it, or create it for its owner alone. Raises OSError."""
        self._path = path
        self._file = _open(path)
        self._torn = False
        """Whether it ends in the middle of a line."""

    def close(self) -> None:
        """Close it."""
        os.close(self._file)

    def append(self, lines: Sequence[str]) -> tuple[int, OSError | None]:
        """Append lines of ASCII, given without their ends; returns how many are in the file, and why not all are."""
        written = 0
        data = b""
        try:
            self._follow()
            data = "\n".join(["", *lines, ""] if self._torn else [*lines, ""]).encode("ascii")
            while written < len(data):
                written += os.write(self._file, data[written:] if written else data)
        except OSError as error:
            whole = data.rfind(b"\n", 0, written) + 1
            finished = data[:whole].count(b"\n") - (self._torn and whole > 0)
            # What was torn before is ended by the first line end that got through.
            self._torn = (self._torn and not whole) or not self._cut(written - whole)
            return finished, error
        self._torn = False
        return len(lines), None

    def _cut(self, size: int) -> bool:
        """Remove the part of a line at the end. False: that is not possible, and the next write has to end the line."""
        if not size:
            return True
        try:
            held = os.fstat(self._file)
            if not S_ISREG(held.st_mode) or held.st_size < size:
                return False
            os.ftruncate(self._file, held.st_size - size)
        except OSError:
            return False
        return True

    def _follow(self) -> None:
        """Reopen the file if its name leads to another one now, or to none: the old one was moved away."""
        held = os.fstat(self._file)
        try:
            there = self._path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino):
            fresh = _open(self._path)
            os.close(self._file)
            self._file = fresh
            self._torn = False


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
