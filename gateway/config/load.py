"""Loads files, environment and flags into one `GatewayConfig`.

Turns what a person gave (a path, or nothing) into the frozen configuration that every package is built from, or into a
ConfigError; nothing is started either way. Precedence: flags, then `CODEC_GATEWAY_*`, then codec-gateway.toml, then the
defaults of `gateway_config.py`. This module finds the files; the modules beside it read them.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from gateway.config.access import (
    ConnectionsConfig,
    ConsoleConfig,
    build_audit,
    build_oauth,
    build_telemetry,
    build_trajectories,
    read_networks,
    refuse_useless_exchange,
)
from gateway.config.address import is_loopback, origin_of
from gateway.config.engine_tables import build_engines, refuse_own_ports
from gateway.config.gateway_config import (
    AgentConfig,
    GatewayConfig,
    LimitsConfig,
    ServeConfig,
    TokensConfig,
    ViewConfig,
)
from gateway.config.layers import (
    PREFIX,
    Layer,
    absolute_path,
    flag_of,
    layer_from_environ,
    layer_from_flags,
    layer_from_toml,
    merge_layers,
)
from gateway.config.overrides import build_approvals, build_overrides, refuse_shared_names
from gateway.config.programs import manifest_paths
from gateway.config.replicas import build_replicas, build_shared
from gateway.config.server_entries import NAME
from gateway.config.server_files import BrokenEntry, foreign_servers, join_servers, own_servers
from gateway.config.source import Expander, read_toml
from gateway.config.wire import build_wire
from gateway.errors import ConfigError

_KEY: Final = re.compile(r"(?<![\w.'/-])[a-z_]+(?:\.[a-z_]+)*(?![\w/-]|\.\w)")
_QUOTED: Final = re.compile(r"key '([\w.-]+)'")


def name_as_written(message: str, flags: Iterable[str], variables: Mapping[str, str], file: Path | None) -> str:
    """The message, with every key replaced that an option or a variable set, and the place of one from the file.

    Args:
        flags: dotted keys that were given as options.
        variables: environment variables by the dotted key that each sets.
        file: the gateway's own file, if there is one.
    """
    if file is not None and message.startswith(f"{file}: "):
        found = _QUOTED.search(message)
        line = None if found is None else line_of(file, found[1])
        return message if line is None else f"{file}:{line}{message.removeprefix(str(file))}"
    given = {**variables, **{key: flag_of(key) for key in flags}}
    first = _KEY.match(message)
    if first is None:
        return message
    named = _KEY.sub(lambda key: given.get(key[0], key[0]), message)
    line = None if named != message or file is None else line_of(file, first[0])
    return named if line is None else f"{file}:{line}: {named}"


def variable_of(dotted: str) -> str:
    """The environment variable that sets a key."""
    return PREFIX + dotted.upper().replace(".", "__")


def keys_of(layer: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """The dotted keys of every value in a layer, and of its tables."""
    for key, value in layer.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from keys_of(cast("Layer", value), f"{prefix}{key}.")


def line_of(file: Path, dotted: str) -> int | None:
    """The line of a TOML file on which a key stands; None if the file does not have it as a line of its own."""
    table = ""
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        text = line.strip()
        if text.startswith("[") and not text.startswith("[["):
            table = f"{_dotted(text.partition(']')[0] + ']')}."
            if table == f"{dotted}.":
                return number
        elif "=" in text and f"{table}{text.partition('=')[0].strip()}" == dotted:
            return number
    return None


def _dotted(header: str) -> str:
    try:
        layer: Layer = tomllib.loads(header)
    except tomllib.TOMLDecodeError:
        return ""
    return max(keys_of(layer), key=len, default="")


OWN_FILE: Final = "codec-gateway.toml"
KEYS_FILE: Final = "keys.toml"
_SHOWN: Final = 100
"""Characters of a wrong value that an error shows."""


class _Files(NamedTuple):
    json: Path | None
    toml: Path | None


def load_config(
    config_file: Path | None,
    overrides: Mapping[str, object] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    broken: BrokenEntry | None = None,
) -> GatewayConfig:
    """Load everything the gateway has to know before it starts.

    Args:
        config_file: an mcpServers JSON or a codec-gateway.toml. None: codec-gateway.toml in `cwd`, if there is one.
        overrides: flags by dotted key (`serve.port`, `engine.kind`; `engine` takes a word or a URL); None: not given.
        environ: the process's own environment when unset.
        cwd: the process's own folder when unset.
        broken: takes servers whose entries can't be read, with the reason; without it, the first one is an error in
            codec-gateway.toml, and left out with a warning in mcpServers JSON.

    Raises:
        ConfigError: a file, a key or a value is wrong. The message says which, and what to do.
    """
    environ = os.environ if environ is None else environ
    cwd = (Path.cwd() if cwd is None else cwd).resolve()
    flags = layer_from_flags(overrides or {}, cwd)
    variables, warnings = layer_from_environ(environ, cwd)
    files = _find_files(config_file, cwd)
    try:
        return _load(files, flags, variables, warnings, environ, cwd, broken)
    except ConfigError as error:
        given = [key for key, value in (overrides or {}).items() if value is not None]
        set_by = {key: name for key in keys_of(variables) if (name := variable_of(key)) in environ}
        raise ConfigError(name_as_written(error.message, given, set_by, files.toml)) from error


def written_keys(
    config_file: Path | None, *, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> frozenset[str]:
    """The dotted keys that the file or the environment sets. Raises `ConfigError`."""
    environ = os.environ if environ is None else environ
    cwd = (Path.cwd() if cwd is None else cwd).resolve()
    written = _read_own(_find_files(config_file, cwd).toml, environ)
    return frozenset(keys_of(merge_layers(written, layer_from_environ(environ, cwd)[0])))


def _load(
    files: "_Files",
    flags: Layer,
    variables: Layer,
    warnings: list[str],
    environ: Mapping[str, str],
    cwd: Path,
    broken: BrokenEntry | None,
) -> GatewayConfig:
    json_file, toml_file = files
    written = _read_own(toml_file, environ)
    layer = merge_layers(merge_layers(written, variables), flags)
    separator: str = layer.get("separator", GatewayConfig().separator)
    hosts = tuple(layer.get("registry", {}).get("allowed_hosts", ()))
    sources = [own_servers(toml_file, written["upstreams"], separator, environ, hosts, broken)] if toml_file else []
    list_file = json_file or _maybe_path(layer.get("mcp_config"))
    if list_file:
        sources.append(foreign_servers(list_file, separator, environ, broken, toml_file))
    warnings += [warning for source in sources for warning in source.warnings]
    upstreams = join_servers(upstream for source in sources for upstream in source.upstreams)
    views = _build_views(layer.get("views", {}))
    refuse_shared_names({each.name: each.overrides for each in upstreams}, {k: v.overrides for k, v in views.items()})
    engine, engines = build_engines(layer["engine"], layer.get("engines", {}))
    serve = _build_serve(layer.get("serve", {}), (toml_file or json_file or cwd / OWN_FILE).parent)
    refuse_own_ports(engines or {"engine": engine}, serve)
    refuse_useless_exchange((each.name for each in upstreams if each.exchange), has_issuer=serve.oauth is not None)
    replicas = build_replicas(layer.get("replicas", {}))
    config = GatewayConfig(
        upstreams=upstreams,
        engine=engine,
        engines=engines,
        agent=replace(
            AgentConfig(),
            **{**layer.get("agent", {}), "result_files": _maybe_path(layer.get("agent", {}).get("result_files"))},
        ),
        tokens=_build_tokens(layer["tokens"]),
        limits=replace(LimitsConfig(), **layer.get("limits", {})),
        serve=serve,
        wire=build_wire(layer.get("wire", {})),
        approvals=build_approvals(layer.get("approvals", {})),
        audit=build_audit(layer.get("audit", {})),
        trajectories=build_trajectories(layer.get("trajectories", {})),
        telemetry=build_telemetry(layer.get("telemetry", {})),
        replicas=replicas,
        shared=build_shared(layer.get("shared", {}), alone=replicas.address is None and serve.workers == 1),
        console=replace(ConsoleConfig(), **layer.get("console", {})),
        views=views,
        separator=separator,
        prefix=layer.get("prefix", GatewayConfig().prefix),
        tool_search=layer.get("tool_search", GatewayConfig().tool_search),
        safe_names=layer.get("safe_names", GatewayConfig().safe_names),
        files=(*(path for path in (toml_file, list_file) if path is not None), *manifest_paths(upstreams)),
    )
    return replace(config, warnings=(*warnings, *_notice(config, left_out=bool(broken))))


def _find_files(config_file: Path | None, cwd: Path) -> _Files:
    """Return (JSON, TOML): the file that was named, and the gateway's own file beside it."""
    if config_file is None:
        own = cwd / OWN_FILE
        return _Files(None, own if own.is_file() else None)
    named = absolute_path(config_file, cwd)
    if named.suffix.lower() == ".toml":
        return _Files(None, named)
    beside = [folder / OWN_FILE for folder in (named.parent, cwd)]
    return _Files(named, next((path for path in beside if path.is_file()), None))


def _read_own(toml_file: Path | None, environ: Mapping[str, str]) -> Layer:
    if toml_file is None:
        return {"upstreams": {}}
    return layer_from_toml(read_toml(toml_file), str(toml_file), Expander(environ, toml_file.parent))


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
        "cors_origins": tuple(map(_read_origin, values.get("cors_origins", ()))),
        "keys": _maybe_path(values.get("keys")) or folder / KEYS_FILE,
        "oauth": build_oauth(values.get("oauth", {})),
        "connections": replace(ConnectionsConfig(), **values.get("connections", {})),
        "trusted_proxies": read_networks(values.get("trusted_proxies", ()), "serve.trusted_proxies"),
    }
    serve = replace(ServeConfig(), **{**values, **built})
    if serve.port and (serve.host, serve.port) == (serve.admin_host, serve.admin_port):
        raise ConfigError(f"serve.port and serve.admin_port are both {serve.port}: give each its own")
    return serve


def _build_views(written: Layer) -> Mapping[str, ViewConfig]:
    for name in written:
        if NAME.fullmatch(name) is None:
            raise ConfigError(f"views.{name[:_SHOWN]}: a view's name must have 1 to 64 letters, digits, '_' and '-'")
    return MappingProxyType({name: _build_view(view) for name, view in written.items()})


def _build_view(view: Layer) -> ViewConfig:
    servers, tools = (tuple(view.get(key, ())) for key in ("servers", "tools"))
    return ViewConfig(servers, tools, build_overrides(view.get("overrides", {})))


def _read_origin(text: str) -> str:
    origin = origin_of(text)
    if origin is None:
        raise ConfigError(
            f"serve.cors_origins: {text[:_SHOWN]!r} is no origin: expected http://HOST or https://HOST, with or "
            "without :PORT"
        )
    return origin


def _notice(config: GatewayConfig, *, left_out: bool) -> list[str]:
    """What a person should know. `left_out`: there are entries of servers that can't be read."""
    found: list[str] = []
    if not config.upstreams and not config.has_engine and not left_out:
        found.append("no MCP server and no engine is configured: there is nothing to serve")
    names = {each.name for each in config.upstreams}
    for name, view in config.views.items():
        if missing := [each for each in view.servers if each not in names]:
            found.append(f"views.{name}.servers: there is no server {', '.join(map(repr, missing))}")
        if name in names and view.servers != (name,):
            found.append(f"views.{name}: /mcp/{name} serves this view, and not the server of that name")
    if not is_loopback(config.serve.admin_host):
        found.append(f"serve.admin_host {config.serve.admin_host!r} is not loopback, and its pages need no key")
    return found


def _must_be_file(path: Path, key: str, expected: str) -> None:
    if not path.is_file():
        raise ConfigError(f"{key}: expected {expected}, but {str(path)!r} is not a file: correct the path")


def _maybe_path(value: str | None) -> Path | None:
    return Path(value) if value else None
