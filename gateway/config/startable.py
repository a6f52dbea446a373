"""Whether the program of a stdio server can be started: its entry to a reason why not, from the file system alone.

Looks for it as the transport will: on the PATH that the server gets, or relative to its folder. Starts nothing.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gateway.config.model import UpstreamConfig


def why_not_startable(upstream: UpstreamConfig, environ: Mapping[str, str] = os.environ) -> str | None:
    """Why its command can't be started; None if it can, or if the server is no program of ours."""
    command = upstream.command
    if command is None:
        return None
    if "/" not in command:
        search = upstream.env.get("PATH", environ.get("PATH", os.defpath))
        found = shutil.which(command, path=search)
        return None if found else f"its command {command!r} is not on PATH: install it, or give its whole path"
    path = (upstream.cwd or Path.cwd()) / command
    if path.is_dir():
        return f"its command {command!r} is a folder: name the program in it"
    if not path.exists():
        return f"its command {command!r} does not exist: correct the path, or install it"
    return None if os.access(path, os.X_OK) else f"its command {command!r} is not executable: chmod +x it"
