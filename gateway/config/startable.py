"""Where the program of a stdio server is: its entry to a path, or to a reason why it can't be started.

Looks on the PATH that the server gets, or relative to its folder. Reads the file system alone, and starts nothing.
"""

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.config.model import UpstreamConfig

_OURS: Final = "codec-"
"""How the names of the programs begin that come with the gateway."""


def find_program(command: str, search: str) -> str | None:
    """The path of a program that is named without a folder; None if there is none.

    One of ours is also found beside the Python that runs this, because a client that starts the gateway by its path
    seldom gives it a PATH with that folder. `search`: the PATH that the server gets.
    """
    found = shutil.which(command, path=search)
    if found is None and command.startswith(_OURS):
        found = shutil.which(command, path=str(Path(sys.executable).parent))
    return found


def why_not_startable(upstream: UpstreamConfig, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why its command can't be started; None if it can, or if the server is no program of ours."""
    command = upstream.command
    if command is None:
        return None
    if "/" not in command:
        search = upstream.env.get("PATH", environ.get("PATH", os.defpath))
        return (
            None
            if find_program(command, search)
            else f"its command {command!r} is not on PATH: install it, or give its whole path"
        )
    path = (upstream.cwd or Path.cwd()) / command
    if path.is_dir():
        return f"its command {command!r} is a folder: name the program in it"
    if not path.exists():
        return f"its command {command!r} does not exist: correct the path, or install it"
    return None if os.access(path, os.X_OK) else f"its command {command!r} is not executable: chmod +x it"
