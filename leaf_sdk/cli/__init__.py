"""The command `codec-leaf` (extra `cli`), and the one place where errors of the SDK become a line and an exit code.

The base install has the command but not typer, which parses its arguments: there the command only says what to install.
"""

import sys
from typing import NoReturn

from leaf_sdk.errors import CodecError

EXIT_UNUSABLE = 3
"""The input, or what is installed, can't be used; wrong arguments end in typer's own 2."""


def main() -> None:
    """Run the command; the entry point of `codec-leaf`."""
    try:
        from .commands import app
    except ModuleNotFoundError as error:
        _leave(f"{error.name!r} is not installed; it comes with an extra: pip install 'codec-leaf[cli]'")
    try:
        app()
    except CodecError as error:
        _leave(error.message)


def _leave(line: str) -> NoReturn:
    sys.stderr.write(f"codec-leaf: {line}\n")
    sys.exit(EXIT_UNUSABLE)
