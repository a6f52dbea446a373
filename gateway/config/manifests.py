"""Where the manifests of bolt-on tools are, and which endpoints they may name.

Turns what a person wrote (a path or a URL) into an absolute place, and a place into the state of its files, so that a
changed manifest is noticed like a changed setting. No manifest is opened here and no address resolved:
`gateway.proxy.bolt_on` does that.
"""

from collections.abc import Collection, Iterable
from pathlib import Path
from time import time_ns
from typing import Final
from urllib.parse import urlsplit

from gateway.config.address import is_http_url
from gateway.config.model import UpstreamConfig
from gateway.errors import ConfigError

UNIX: Final = "unix:"


def read_manifest_place(given: str, folder: Path, hosts: Collection[str], where: str) -> str:
    """The absolute path, or the URL, that `manifest` names. `folder`: where relative paths start.

    Raises:
        ConfigError: there is no such file, or the URL's host is not in `registry.allowed_hosts`.
    """
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
    """Return the endpoint as it is.

    Raises:
        ConfigError: it is neither an http(s) URL nor `unix:` and an absolute path.
    """
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
