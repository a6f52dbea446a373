"""The ways in which values are spelled in calls: Python's, and those of the Gemma models.

Only facts.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """How values are spelled. If one quote begins with another, the longer one comes first in `quotes`."""

    quotes: tuple[str, ...]
    escapes: bool = True
    """Whether strings between its first quotes have escapes; those between a program's quotes always have."""
    bare: bool = False
    """Whether keys, and strings without any of the dialect's own marks, may be written without quotes."""
    loose: bool = False
    """Whether a string may contain its own quotes unescaped (`atoms.string_ends`)."""


PYTHON = Dialect(('"""', "'''", '"', "'"))
PYTHON_CALL = Dialect(PYTHON.quotes, loose=True)
GEMMA = Dialect(('<|"|>', *PYTHON.quotes, "`"), escapes=False, bare=True, loose=True)
FUNCTION_GEMMA = Dialect(("<escape>", *PYTHON.quotes, "`"), escapes=False, bare=True, loose=True)
