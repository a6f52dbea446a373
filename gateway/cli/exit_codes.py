"""The exit codes of `codec-gateway`. `docs/operate.md` repeats this list."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
"""Wrong flags or arguments (click's own code)."""
CONFIG: Final = 3
"""A setting, a map or a hash is wrong: nothing was started."""
UNREACHABLE: Final = 4
"""The engine or an upstream can't be reached but is needed, or the engine is not the one the map describes."""
INTERRUPTED: Final = 130
"""Ctrl-C."""
