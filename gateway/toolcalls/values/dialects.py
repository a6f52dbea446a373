"""In which ways values are spelled in calls: Python's, and those of the Gemma models.

Facts alone.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """How values are spelled. Of two quotes, the one that begins with the other stands first."""

    quotes: tuple[str, ...]
    escapes: bool = True
    bare: bool = False
    """Whether keys, and strings that hold none of the dialect's own marks, may stand without quotes."""
    loose: bool = False
    """Whether a string may have its own quotes inside (`atoms.string_ends`)."""


PYTHON = Dialect(('"""', "'''", '"', "'"))
PYTHON_CALL = Dialect(PYTHON.quotes, loose=True)
GEMMA = Dialect(('<|"|>', '"'), escapes=False, bare=True)
FUNCTION_GEMMA = Dialect(("<escape>", '"'), escapes=False, bare=True)
