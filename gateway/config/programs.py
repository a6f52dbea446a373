"""What a server's entry names on this machine: a program, and what it inherits; or the manifests of bolt-on tools."""

import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from time import time_ns
from typing import Final
from urllib.parse import urlsplit

from gateway.config.address import is_http_url
from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import ConfigError

# No manifest is opened here and no address resolved: `gateway.proxy.bolt_on` does that.

UNIX: Final = "unix:"


def read_manifest_place(given: str, folder: Path, hosts: Collection[str], where: str) -> str:
    """The absolute path, or the URL, that `manifest` names. `folder`: where relative paths start. Raises `ConfigError`:
    there is no such file, or the URL's host is not in `registry.allowed_hosts`."""
    if "://" in given:
        if not is_http_url(given) or not is_listed(given, hosts):
            raise ConfigError(
                f"{where}: key 'manifest': {given[:200]!r} is not an http(s) URL whose host is in "
                "registry.allowed_hosts: add the host there if you trust it"
            )
        return given
    path = folder / Path(given).expanduser()
    if not path.exists():
        raise ConfigError(f"{where}: key 'manifest': {str(path)!r} does not exist: correct the path")
    return str(path.absolute())


def check_endpoint(endpoint: str, where: str) -> str:
    """Return the endpoint as it is. Raises `ConfigError`: it is neither an http(s) URL nor `unix:` and an absolute
    path."""
    if is_http_url(endpoint) or endpoint.startswith(f"{UNIX}/"):
        return endpoint
    raise ConfigError(f"{where}: key 'endpoint': expected http://HOST:PORT, https://HOST or unix:/path/to/socket")


def is_listed(url: str, hosts: Collection[str]) -> bool:
    """Whether an operator listed the URL's host: as `name`, for every port, or as `name:port`."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return bool({host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"} & {each.lower() for each in hosts})


def state_of_manifest(place: str) -> tuple[tuple[str, int, int], ...]:
    """Path, time and size of every file that could be a manifest; for a URL, the current time.

    Nothing tells whether a URL would give the same answer again, so a new configuration reads it again.
    """
    if "://" in place:
        return ((place, time_ns(), 0),)
    root = Path(place)
    paths = [root]
    if root.is_dir():
        # Imported late: every command reads settings, and few name a folder of manifests.
        from leaf_sdk.leaf.bolt_on.files import MANIFEST_NAME, MAX_MANIFESTS

        inside = sorted(root.iterdir())[:MAX_MANIFESTS]
        paths += [each for each in inside if each.suffix == ".json"]
        paths += [each / MANIFEST_NAME for each in inside if each.is_dir()]
    return tuple(found for path in paths if (found := _state(path)) is not None)


def manifest_paths(upstreams: Iterable[UpstreamConfig]) -> tuple[Path, ...]:
    """The files and folders whose changes are to be noticed."""
    return tuple(Path(path) for each in upstreams for path, _, _ in each.manifest_state if "://" not in path)


def _state(path: Path) -> tuple[str, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_mtime_ns, found.st_size


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


# Without `inherit_env` a program gets the few variables that it needs to run, and those by which it finds its way out
# of a network with a proxy or a certificate authority of its own. No secret is passed on that is not asked for.

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
    """The variables of `outer` that a server inherits. `inherit`: names and patterns (`*`, `?`) of more variables than
    usual; true: all; false: not even the network's."""
    usual = PROGRAM if inherit is False else (*PROGRAM, *NETWORK)
    patterns = ("*",) if inherit is True else inherit or ()
    return {
        name: value
        for name, value in outer.items()
        if name in usual or any(name == each or _fits(name, each) for each in patterns)
    }


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) and not name.startswith(_OWN)


# The configuration with which an MCP client starts the gateway may be the one that the gateway itself is given: then it
# starts itself without end. Each gateway tells its children how deep they are nested; a depth that nobody needs is
# refused.

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
