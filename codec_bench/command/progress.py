"""The progress of a command on standard error: one line that changes on a terminal, or a line now and then in a pipe.

Turns text into what is written. No line is wider than the terminal, and nothing in it can move the cursor.
"""

import shutil
import sys
from time import monotonic
from typing import Final

from gateway.escape import escape_text

_LINES_EVERY: Final = 10.0
"""Seconds between lines that do not go to a terminal."""


class Progress:
    """The line of one command."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._told = monotonic() if not self._terminal else 0.0

    def tell(self, words: str) -> None:
        """Show the progress so far; call it as often as you like."""
        if self._terminal:
            width = max(10, shutil.get_terminal_size().columns - 1)
            sys.stderr.write(f"\r\x1b[K{escape_text(words)[:width]}")
        elif monotonic() - self._told < _LINES_EVERY:
            return
        else:
            sys.stderr.write(f"{escape_text(words)}\n")
        self._told = monotonic()
        sys.stderr.flush()

    def end(self) -> None:
        """Clear the line."""
        if self._terminal:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
