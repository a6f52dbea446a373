"""A file of lines that others may move away, cut or fill the disk of: what is in it are whole lines.

Turns lines into bytes at the end of a file, and a write that broke off into how many lines are there: the part of one
that could not be finished is taken away again. The file is opened anew when its name leads to another one (logrotate).
It knows no audit.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG


class LineFile:
    """One file, opened for appending."""

    def __init__(self, path: Path) -> None:
        """Open it, or make it for its owner alone. Raises OSError."""
        self._path = path
        self._file = _open(path)
        self._torn = False
        """Whether it ends in the middle of a line."""

    def close(self) -> None:
        """Close it."""
        os.close(self._file)

    def append(self, lines: Sequence[str]) -> tuple[int, OSError | None]:
        """Write lines of ASCII, without their ends; gives how many are in the file, and why not all."""
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
        """Take away the part of a line that stands at the end; False: it can't be, and the next line has to end it."""
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
        """Open the file anew if another stands there now, or none: the old one was moved away."""
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
