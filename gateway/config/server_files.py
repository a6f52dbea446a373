"""The servers that files name: the gateway's own file, or one of another program.

Turns the entries of a file into `UpstreamConfig`s. An entry that can't be read is an error, or, for a command that
checks files, a reason beside the others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.config.env_file import parse_env_file
from gateway.config.expand import Expander
from gateway.config.foreign import read_foreign
from gateway.config.model import UpstreamConfig
from gateway.config.servers import ServerReader
from gateway.config.source import read_config_text, read_json
from gateway.errors import ConfigError

_EDITOR_FOLDERS: Final = frozenset({".vscode", ".cursor", ".claude"})
Broken = dict[str, str]
"""Why a server's entry can't be read, by its name."""


class Servers(NamedTuple):
    """The upstreams of one file, and what was passed over in it."""

    upstreams: list[UpstreamConfig]
    warnings: list[str]


def own_servers(
    toml_file: Path,
    entries: Mapping[str, dict[str, Any]],
    separator: str,
    environ: Mapping[str, str],
    hosts: tuple[str, ...],
    broken: Broken | None,
) -> Servers:
    """The servers of the gateway's own file. Raises `ConfigError`, if `broken` is None."""
    reader = ServerReader(str(toml_file), Expander(environ, toml_file.parent), separator, hosts)
    enabled = {name: entry for name, entry in entries.items() if not entry.get("disabled")}
    return Servers(list(_read_each(reader.read, enabled, broken)), [])


def foreign_servers(path: Path, separator: str, environ: Mapping[str, str], broken: Broken | None) -> Servers:
    """The servers of an mcpServers file. Raises `ConfigError`."""
    found = read_foreign(read_json(path), str(path), separator)
    folder = path.parent.parent if path.parent.name in _EDITOR_FOLDERS else path.parent
    reader = ServerReader(str(path), Expander(environ, folder), separator)
    read = partial(_read_with_env_file, reader)
    return Servers(list(_read_each(read, found.entries, broken)), found.warnings)


def _read_each(
    read: Callable[[str, dict[str, Any]], UpstreamConfig], entries: Mapping[str, dict[str, Any]], broken: Broken | None
) -> Iterator[UpstreamConfig]:
    for name, entry in entries.items():
        try:
            yield read(name, entry)
        except ConfigError as error:
            if broken is None:
                raise
            broken[name] = error.message


def _read_with_env_file(reader: ServerReader, name: str, entry: dict[str, Any]) -> UpstreamConfig:
    upstream = reader.read(name, entry)
    if not entry["envFile"] or upstream.command is None:
        return upstream
    given = reader.expander.expand(entry["envFile"], f"{reader.origin}: server {name!r}: key 'envFile'")[0]
    path = reader.expander.workspace / Path(given).expanduser()
    variables = parse_env_file(read_config_text(path), str(path))
    # What the entry itself sets takes precedence. Every value from such a file counts as secret.
    secrets = upstream.secrets | {value for value in variables.values() if value}
    return replace(upstream, env=MappingProxyType({**variables, **upstream.env}), secrets=secrets)


def join_servers(upstreams: Iterable[UpstreamConfig]) -> tuple[UpstreamConfig, ...]:
    """All servers. Raises `ConfigError` if two have the same name."""
    joined: dict[str, UpstreamConfig] = {}
    for upstream in upstreams:
        if upstream.name in joined:
            raise ConfigError(f"two servers are called {upstream.name!r}: one in each file; rename or remove one")
        joined[upstream.name] = upstream
    return tuple(joined.values())
