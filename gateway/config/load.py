"""Loads files, environment and flags into one `GatewayConfig`.

Turns what a person gave (a path, or nothing) into the frozen configuration that every package is built from, or into a
ConfigError; nothing is started either way. Precedence: flags, then `CODEC_GATEWAY_*`, then codec-gateway.toml, then the
defaults of `model.py`. This module finds the files; the modules beside it read them.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from gateway.config.access import build_audit, build_oauth, build_telemetry, build_trajectories
from gateway.config.address import is_loopback
from gateway.config.connections import ConnectionsConfig, read_networks
from gateway.config.console import ConsoleConfig
from gateway.config.engines import build_engines
from gateway.config.env_file import parse_env_file
from gateway.config.expand import Expander
from gateway.config.foreign import read_foreign
from gateway.config.layers import Layer, layer_from_environ, layer_from_flags, layer_from_toml, merge_layers
from gateway.config.manifests import manifest_paths
from gateway.config.model import (
    AgentConfig,
    GatewayConfig,
    LimitsConfig,
    ServeConfig,
    TokensConfig,
    UpstreamConfig,
)
from gateway.config.replicas import build_replicas
from gateway.config.servers import ServerReader
from gateway.config.shared import build_shared
from gateway.config.source import read_config_text, read_json, read_toml
from gateway.config.wire import build_wire
from gateway.errors import ConfigError

OWN_FILE: Final = "codec-gateway.toml"
KEYS_FILE: Final = "keys.toml"
_EDITOR_FOLDERS = frozenset({".vscode", ".cursor", ".claude"})


class Servers(NamedTuple):
    """The upstreams of one file, and what was passed over in it."""

    upstreams: list[UpstreamConfig]
    warnings: list[str]


def load_config(
    config_file: Path | None,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> GatewayConfig:
    """Load everything the gateway has to know before it starts.

    Args:
        config_file: an mcpServers JSON or a codec-gateway.toml. None: codec-gateway.toml in `cwd`, if there is one.
        overrides: flags by dotted key (`serve.port`, `engine.kind`; `engine` takes a word or a URL); None: not given.
        environ: the process's own environment when unset.
        cwd: the process's own folder when unset.

    Raises:
        ConfigError: a file, a key or a value is wrong. The message says which, and what to do.
    """
    environ = os.environ if environ is None else environ
    cwd = (Path.cwd() if cwd is None else cwd).resolve()
    flags = layer_from_flags(overrides or {}, cwd)
    variables, warnings = layer_from_environ(environ, cwd)
    json_file, toml_file = _find_files(config_file, cwd)
    written = _read_own(toml_file, environ)
    layer = merge_layers(merge_layers(written, variables), flags)
    separator: str = layer.get("separator", GatewayConfig().separator)
    hosts = tuple(layer.get("registry", {}).get("allowed_hosts", ()))
    sources = [_own_servers(toml_file, written["upstreams"], separator, environ, hosts)] if toml_file else []
    list_file = json_file or _maybe_path(layer.get("mcp_config"))
    if list_file:
        sources.append(_foreign_servers(list_file, separator, environ))
    warnings += [warning for source in sources for warning in source.warnings]
    upstreams = _join(upstream for source in sources for upstream in source.upstreams)
    engine, engines = build_engines(layer["engine"], layer.get("engines", {}))
    serve = _build_serve(layer.get("serve", {}), (toml_file or json_file or cwd / OWN_FILE).parent)
    replicas = build_replicas(layer.get("replicas", {}))
    config = GatewayConfig(
        upstreams=upstreams,
        engine=engine,
        engines=engines,
        agent=replace(AgentConfig(), **layer.get("agent", {})),
        tokens=_build_tokens(layer["tokens"]),
        limits=replace(LimitsConfig(), **layer.get("limits", {})),
        serve=serve,
        wire=build_wire(layer.get("wire", {})),
        audit=build_audit(layer.get("audit", {})),
        trajectories=build_trajectories(layer.get("trajectories", {})),
        telemetry=build_telemetry(layer.get("telemetry", {})),
        replicas=replicas,
        shared=build_shared(layer.get("shared", {}), alone=replicas.address is None and serve.workers == 1),
        console=replace(ConsoleConfig(), **layer.get("console", {})),
        separator=separator,
        prefix=layer.get("prefix", GatewayConfig().prefix),
        tool_search=layer.get("tool_search", GatewayConfig().tool_search),
        files=(*(path for path in (toml_file, list_file) if path is not None), *manifest_paths(upstreams)),
    )
    return replace(config, warnings=(*warnings, *_notice(config)))


def _find_files(config_file: Path | None, cwd: Path) -> tuple[Path | None, Path | None]:
    """Return (JSON, TOML): the file that was named, and the gateway's own file beside it."""
    if config_file is None:
        own = cwd / OWN_FILE
        return None, own if own.is_file() else None
    named = (cwd / config_file.expanduser()).resolve()
    if named.suffix.lower() == ".toml":
        return None, named
    beside = [folder / OWN_FILE for folder in (named.parent, cwd)]
    return named, next((path for path in beside if path.is_file()), None)


def _read_own(toml_file: Path | None, environ: Mapping[str, str]) -> Layer:
    if toml_file is None:
        return {"upstreams": {}}
    return layer_from_toml(read_toml(toml_file), str(toml_file), Expander(environ, toml_file.parent))


def _own_servers(
    toml_file: Path,
    entries: Mapping[str, dict[str, Any]],
    separator: str,
    environ: Mapping[str, str],
    hosts: tuple[str, ...],
) -> Servers:
    reader = ServerReader(str(toml_file), Expander(environ, toml_file.parent), separator, hosts)
    return Servers([reader.read(name, entry) for name, entry in entries.items() if not entry.get("disabled")], [])


def _foreign_servers(path: Path, separator: str, environ: Mapping[str, str]) -> Servers:
    found = read_foreign(read_json(path), str(path), separator)
    folder = path.parent.parent if path.parent.name in _EDITOR_FOLDERS else path.parent
    reader = ServerReader(str(path), Expander(environ, folder), separator)
    return Servers([_read_with_env_file(reader, name, entry) for name, entry in found.entries.items()], found.warnings)


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


def _join(upstreams: Iterable[UpstreamConfig]) -> tuple[UpstreamConfig, ...]:
    joined: dict[str, UpstreamConfig] = {}
    for upstream in upstreams:
        if upstream.name in joined:
            raise ConfigError(f"two servers are called {upstream.name!r}: one in each file; rename or remove one")
        joined[upstream.name] = upstream
    return tuple(joined.values())


def _build_tokens(values: Layer) -> TokensConfig:
    tokens = replace(TokensConfig(), **{**values, "maps": tuple(Path(path) for path in values.get("maps", []))})
    if tokens.map == "none":
        return replace(tokens, map=None)
    if tokens.map not in {"auto", None}:
        _must_be_file(Path(str(tokens.map)), "tokens.map", "'auto', 'none' or a map file")
    for path in tokens.maps:
        _must_be_file(path, "tokens.maps", "map files")
    return tokens


def _build_serve(values: Layer, folder: Path) -> ServeConfig:
    built = {
        "allowed_hosts": tuple(values.get("allowed_hosts", ())),
        "keys": _maybe_path(values.get("keys")) or folder / KEYS_FILE,
        "oauth": build_oauth(values.get("oauth", {})),
        "connections": replace(ConnectionsConfig(), **values.get("connections", {})),
        "trusted_proxies": read_networks(values.get("trusted_proxies", ()), "serve.trusted_proxies"),
    }
    serve = replace(ServeConfig(), **{**values, **built})
    if serve.port and (serve.host, serve.port) == (serve.admin_host, serve.admin_port):
        raise ConfigError(f"serve.port and serve.admin_port are both {serve.port}: give each its own")
    return serve


def _notice(config: GatewayConfig) -> list[str]:
    found: list[str] = []
    if not config.upstreams and not config.has_engine:
        found.append("no MCP server and no engine is configured: there is nothing to serve")
    if not is_loopback(config.serve.admin_host):
        found.append(f"serve.admin_host {config.serve.admin_host!r} is not loopback, and its pages need no key")
    return found


def _must_be_file(path: Path, key: str, expected: str) -> None:
    if not path.is_file():
        raise ConfigError(f"{key}: expected {expected}, but {str(path)!r} is not a file: correct the path")


def _maybe_path(value: str | None) -> Path | None:
    return Path(value) if value else None
