"""The servers that files name: the gateway's own file, or one of another program.

Turns the entries of a file into `UpstreamConfig`s. An entry that can't be read is an error, or, for a command that
checks files, a reason beside the others.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from gateway.config.gateway_config import TRANSPORTS, TransportName, UpstreamConfig
from gateway.config.server_entries import ServerReader
from gateway.config.source import Expander, parse_env_file, read_config_text, read_json
from gateway.errors import ConfigError

# These files belong to other programs (Claude Desktop, Claude Code, Cursor, VS Code, Cline), which put keys of their
# own in them: unknown keys are one warning for the whole file, never an error. An entry that would start the wrong
# thing is left out with a warning; it is an error where no other one is left.

BrokenEntry = dict[str, str]
"""Why a server's entry can't be read, by its name."""

LISTS: Final = ("mcpServers", "servers")
_URL_KEYS = ("url", "serverUrl", "httpUrl")
_TYPE_KEYS = ("type", "transport")
_TIMEOUT_KEYS: Final = ("timeout", "tool_timeout_sec")
_OTHER_KEYS = ("command", "args", "env", "envFile", "cwd", "headers", "disabled", "enabled")
_KNOWN = {*_OTHER_KEYS, *_URL_KEYS, *_TYPE_KEYS, *_TIMEOUT_KEYS}
_MOST_SECONDS: Final = 3600
"""The largest `timeout` that counts as seconds. Cline and Roo Code write seconds, at most these; Claude Code and Gemini
CLI write milliseconds. Nobody wants as few milliseconds, so a longer time is the safe reading."""


@dataclass(slots=True)
class ForeignServers:
    """The servers of one file, and what was passed over in it."""

    entries: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """By server name, the keys of `UpstreamSection`, and `envFile`."""
    broken: BrokenEntry = field(default_factory=dict[str, str])
    warnings: list[str] = field(default_factory=list[str])


def read_foreign(document: Mapping[str, Any], origin: str, separator: str) -> ForeignServers:
    """Read the servers of a JSON document that another program reads too.

    Args:
        document: the object in the file.
        origin: how messages name the file.
        separator: what a server's name may not contain.

    Raises:
        ConfigError: there is no list of servers.
    """
    found = ForeignServers()
    unknown: dict[str, list[str]] = {}
    document = _unwrap(document)
    lists = [key for key in LISTS if key in document]
    if not lists:
        keys = _names(list(document)[:8], LISTS) or "nothing"
        raise ConfigError(f"{origin}: has neither 'mcpServers' nor 'servers' (it has {keys}): add one of them")
    if others := [key for key in document if key not in LISTS]:
        unknown["the file"] = others
    for key in lists:
        for name, entry in _table(document[key], f"{origin}: key {key!r}").items():
            where = f"{origin}: server {name!r}"
            try:
                keys = _table(entry, where)
                if others := [k for k in keys if k not in _KNOWN]:
                    unknown[repr(name)] = others
                translated = _translate(keys, where, found.warnings)
                if translated is not None:
                    _add(found, _safe_name(name, separator, where, found.warnings), translated, where)
            except ConfigError as error:
                found.broken[name] = error.message
    if unknown:
        listed = "; ".join(f"{where}: {_names(keys, sorted(_KNOWN))}" for where, keys in unknown.items())
        found.warnings.append(f"{origin}: keys that the gateway does not know are ignored ({listed})")
    return found


def _names(keys: Sequence[str], known: Sequence[str]) -> str:
    """Keys for a sentence, each with the known key that may have been meant."""
    near = {key: get_close_matches(key, known, n=1, cutoff=0.7) for key in keys}
    return ", ".join(f"{key!r}, did you mean {near[key][0]!r}?" if near[key] else repr(key) for key in keys)


def _unwrap(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object that holds the lists: in VS Code's settings.json it is under `mcp`."""
    inner: object = document.get("mcp")
    if isinstance(inner, dict) and not any(key in document for key in LISTS):
        return cast("dict[str, Any]", inner)
    return document


def _add(found: ForeignServers, name: str, entry: dict[str, Any], where: str) -> None:
    if name in found.entries:
        raise ConfigError(f"{where}: a second server is called {name!r}: rename one of them")
    found.entries[name] = entry


def _translate(keys: Mapping[str, Any], where: str, warnings: list[str]) -> dict[str, Any] | None:
    """The entry with the gateway's own keys, or None if it is to be left out."""
    keys = {key: value for key, value in keys.items() if value is not None}
    if keys.get("disabled") is True or keys.get("enabled") is False:
        return None
    kind = _transport(keys, where)
    url = next((_text(keys[key], f"{where}: key {key!r}") for key in _URL_KEYS if key in keys), None)
    command = _text(keys["command"], f"{where}: key 'command'") if "command" in keys else None
    needed, given = ("command", command) if kind == "stdio" else ("url", url)
    if kind is not None and not given:
        raise ConfigError(f"{where}: has no {needed!r}, which its type needs: add it, or correct the type")
    return {
        "command": command,
        "url": url,
        "args": [_text(arg, f"{where}: key 'args'") for arg in _list(keys.get("args", []), f"{where}: key 'args'")],
        "env": _texts(keys, "env", where),
        "headers": _texts(keys, "headers", where),
        "cwd": _text(keys["cwd"], f"{where}: key 'cwd'") if "cwd" in keys else None,
        "envFile": _text(keys["envFile"], f"{where}: key 'envFile'") if "envFile" in keys else None,
        "timeout": _seconds(keys, where, warnings),
    }


def _seconds(keys: Mapping[str, Any], where: str, warnings: list[str]) -> float | None:
    """Seconds that a call may take; None: the file does not say."""
    key = next((each for each in _TIMEOUT_KEYS if each in keys), None)
    if key is None:
        return None
    try:
        given = float(keys[key])
    except (TypeError, ValueError, OverflowError):
        given = 0.0
    if isinstance(keys[key], bool) or not 0 < given < math.inf:
        warnings.append(f"{where}: key {key!r}: expected a number above 0; the time limit of calls stays as it was")
        return None
    return given / 1000 if key == "timeout" and given > _MOST_SECONDS else given


def _transport(keys: Mapping[str, Any], where: str) -> TransportName | None:
    for key in _TYPE_KEYS:
        if key in keys:
            given = _text(keys[key], f"{where}: key {key!r}")
            word = re.sub(r"[-_]", "", given).lower()
            for name, kind in TRANSPORTS.items():
                if word in kind.words:
                    return name
            expected = " or ".join(repr(name) for name, kind in TRANSPORTS.items() if kind.words)
            raise ConfigError(f"{where}: key {key!r}: expected {expected}, got {given!r}")
    return None


def _safe_name(name: str, separator: str, where: str, warnings: list[str]) -> str:
    safe = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_-")[:64]
    if not safe:
        raise ConfigError(f"{where}: its name has no letter or digit: rename it")
    while separator in safe:
        safe = safe.replace(separator, separator[: len(separator) // 2])
    if safe != name:
        warnings.append(f"{where} is called {safe!r} here: a tool's name may hold letters, digits, '_' and '-' only")
    return safe


def _table(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: expected an object, got {type(value).__name__}")
    return cast("dict[str, Any]", value)


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{where}: expected a list, got {type(value).__name__}")
    return cast("list[Any]", value)


def _texts(keys: Mapping[str, Any], key: str, where: str) -> dict[str, str]:
    table = _table(keys.get(key, {}), f"{where}: key {key!r}")
    # VS Code writes null for "not set"; people often write numbers where a program reads text.
    return {k: _text(v, f"{where}: key '{key}.{k}'") for k, v in table.items() if v is not None}


def _text(value: object, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise ConfigError(f"{where}: expected a text, got {type(value).__name__}")


_GATEWAY: Final = re.compile(r"(?:^|[\\/])codec-gateway(?![\w-])|^(?:-m)?gateway$")
"""A word of a command that starts a gateway: `codec-gateway`, `uvx codec-gateway@1.0`, `python -m gateway`."""
_CONFIG_FLAGS: Final = frozenset({"--config", "-c"})
_CONFIG_WORD: Final = re.compile(r"(?:--config=|-c)(.+)", re.DOTALL)
_EDITOR_FOLDERS: Final = frozenset({".vscode", ".cursor", ".claude"})


class ServerEntries(NamedTuple):
    """The upstreams of one file, and what was passed over in it."""

    upstreams: list[UpstreamConfig]
    warnings: list[str]


def own_servers(
    toml_file: Path,
    entries: Mapping[str, dict[str, Any]],
    separator: str,
    environ: Mapping[str, str],
    hosts: tuple[str, ...],
    broken: BrokenEntry | None,
) -> ServerEntries:
    """The servers of the gateway's own file. Raises `ConfigError`, if `broken` is None."""
    reader = ServerReader(str(toml_file), Expander(environ, toml_file.parent), separator, hosts)
    enabled = {name: entry for name, entry in entries.items() if not entry.get("disabled")}
    return ServerEntries(list(_read_each(reader.read, enabled, broken)), [])


def foreign_servers(
    path: Path, separator: str, environ: Mapping[str, str], broken: BrokenEntry | None, own_file: Path | None = None
) -> ServerEntries:
    """The servers of an mcpServers file. An entry that can't be read is left out with a warning, or said in `broken`.

    Args:
        own_file: the gateway's own file, which names this one.

    Raises:
        ConfigError: it is no such file, or, if `broken` is None, no entry of it can be read.
    """
    found = read_foreign(read_json(path), str(path), separator)
    folder = path.parent.parent if path.parent.name in _EDITOR_FOLDERS else path.parent
    reader = ServerReader(str(path), Expander(environ, folder), separator)
    read = partial(_read_with_env_file, reader)
    upstreams = list(_read_each(read, found.entries, found.broken))
    if broken is not None:
        broken.update(found.broken)
    elif found.broken and not upstreams:
        raise ConfigError(next(iter(found.broken.values())))
    else:
        found.warnings.extend(f"{reason} (the server is left out)" for reason in found.broken.values())
    files = [each for each in (path, own_file) if each is not None]
    itself = [upstream.name for upstream in upstreams if _starts_gateway_with(upstream, files)]
    # Clients' files are given to the gateway as they are, with the gateway already among their servers.
    found.warnings.extend(
        f"{path}: server {name!r} is the gateway itself, started with this file: it is left out" for name in itself
    )
    return ServerEntries([upstream for upstream in upstreams if upstream.name not in itself], found.warnings)


def _starts_gateway_with(upstream: UpstreamConfig, files: Collection[Path]) -> bool:
    """Whether a server is a gateway that reads one of these files."""
    words = [upstream.command or "", *upstream.args]
    if not any(_GATEWAY.search(word) for word in words):
        return False
    named = [after for flag, after in pairwise(words) if flag in _CONFIG_FLAGS]
    named += [found[1] for word in words if (found := _CONFIG_WORD.match(word))]
    folder = upstream.cwd or Path.cwd()
    return any(_is_one_of(folder, each, files) for each in named)


def _is_one_of(folder: Path, named: str, files: Collection[Path]) -> bool:
    try:
        return (folder / Path(named).expanduser()).resolve() in {each.resolve() for each in files}
    # There is no such user, or its links go round in circles.
    except (OSError, RuntimeError):
        return False


def _read_each(
    read: Callable[[str, dict[str, Any]], UpstreamConfig],
    entries: Mapping[str, dict[str, Any]],
    broken: BrokenEntry | None,
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
