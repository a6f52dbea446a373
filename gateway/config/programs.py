"""The program of a stdio server: where it is, what it inherits of the environment, and that it is not this gateway."""

import os
import shutil
import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from gateway.config.model import UpstreamConfig
from gateway.errors import ConfigError

# Where the program of a stdio server is: its entry to a path, or to a reason why it can't be started.
#
# Looks on the PATH that the server gets, or relative to its folder. Reads the file system alone, and starts nothing.

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


# Which of the gateway's own environment variables the program of a stdio server inherits.
#
# Turns `inherit_env` and an environment into the variables that are passed on. Without a setting these are the few that
# a program needs to run, and those by which it finds its way out of a network with a proxy or a certificate authority
# of its own: without them it could reach nothing there. No secret is passed on that is not asked for. Pure.

PROGRAM: Final = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""MCP's own list, and the locale."""
_PROXY: Final = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
NETWORK: Final = (
    *_PROXY,
    *(name.lower() for name in _PROXY),
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
    "CURL_CA_BUNDLE",
)
"""Proxies and certificates, as the usual HTTP libraries read them."""
_OWN: Final = "CODEC_"
"""The gateway's own variables, its token among them: only their whole names pass them on."""


def inherited(inherit: bool | tuple[str, ...], outer: Mapping[str, str]) -> dict[str, str]:
    """The variables of `outer` that a server inherits.

    Args:
        inherit: names and patterns (`*`, `?`) of more variables than usual; true: all; false: not even the network's.
    """
    usual = PROGRAM if inherit is False else (*PROGRAM, *NETWORK)
    patterns = ("*",) if inherit is True else inherit or ()
    return {
        name: value
        for name, value in outer.items()
        if name in usual or any(name == each or _fits(name, each) for each in patterns)
    }


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and not name.startswith(_OWN)


# Allows a gateway behind a gateway, and refuses one that starts itself.
#
# The configuration with which an MCP client starts the gateway may be the one that the gateway itself is given: then it
# starts itself, and that one starts itself again, without end. Each gateway tells its children how deep they are
# nested; a depth that nobody needs is refused. It starts nothing.

DEPTH_VARIABLE: Final = "CODEC_NESTED_GATEWAYS"
"""In a child's environment: how many gateways are above it."""

_DEEPEST: Final = 2


def nesting_depth(environ: Mapping[str, str]) -> int:
    """How many gateways are above this process."""
    depth = environ.get(DEPTH_VARIABLE, "0")
    return int(depth) if depth.isdecimal() else 0


def refuse_nesting(environ: Mapping[str, str]) -> None:
    """Raise `ConfigError` in a gateway that was started by a gateway that was started by a gateway."""
    if nesting_depth(environ) >= _DEEPEST:
        raise ConfigError(
            "a gateway started this one and was itself started by a gateway; the configuration probably names the "
            "gateway itself: remove that entry from its servers"
        )
