"""A configuration as it may be shown: every value, no secret.

Turns a `GatewayConfig` into plain JSON values, in which everything is masked that came from a variable or a header or
whose name sounds secret. It decides nothing about layout.
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.escape import MASK, mask_text, mask_value

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

NAMES: Final = ("separator", "prefix", "safe_names")
"""The settings that decide by which names clients and models know tools."""
SECTIONS: Final = (
    *("engine", "agent", "tokens", "limits", "serve", "approvals", "audit", "trajectories", "telemetry"),
    *("replicas", "shared", "console"),
)


def secrets_of(config: GatewayConfig) -> frozenset[str]:
    """Every value that must appear in no log and on no screen: servers' secrets, keys, tokens, the store's password."""
    engines = (each.api_key for each in config.members.values())
    own = {value for value in (*engines, config.serve.token, config.console.token) if value}
    return frozenset(own).union(config.shared.secrets, *(upstream.secrets for upstream in config.upstreams))


def show_config(config: GatewayConfig) -> dict[str, Any]:
    """The configuration as nested JSON values, secrets replaced by `****`; the keys are those of codec-gateway.toml."""
    secrets = secrets_of(config)
    sections = {name: _show_section(getattr(config, name), secrets) for name in SECTIONS}
    sections["tokens"]["map"] = sections["tokens"]["map"] or "none"
    engines = {name: _show_section(each, secrets) for name, each in config.engines.items()}
    views = {name: _plain("", asdict(view), secrets) for name, view in config.views.items()}
    return {
        **{name: getattr(config, name) for name in NAMES},
        **sections,
        **({"engines": engines} if engines else {}),
        **({"views": views} if config.views else {}),
        "upstreams": {upstream.name: _show_upstream(upstream, secrets) for upstream in config.upstreams},
        "warnings": [mask_text(warning, secrets) for warning in config.warnings],
    }


def _show_section(section: "DataclassInstance", secrets: frozenset[str]) -> dict[str, Any]:
    return {key: _plain(key, value, secrets) for key, value in asdict(section).items()}


def _show_upstream(upstream: UpstreamConfig, secrets: frozenset[str]) -> dict[str, Any]:
    headers = dict.fromkeys(upstream.headers, MASK)
    if upstream.transport == "bolt-on":
        where = {"manifest": upstream.manifest, "endpoint": upstream.endpoint}
        shown = {key: None if value is None else mask_text(value, secrets) for key, value in where.items()}
        return {"transport": "bolt-on", **shown, "headers": headers, "require_match": upstream.require_match}
    if upstream.url is not None:
        parts = {"auth": upstream.auth, "exchange": upstream.exchange}
        return {
            "transport": upstream.transport,
            "url": mask_text(upstream.url, secrets),
            "headers": headers,
            **({"client_headers": list(upstream.client_headers)} if upstream.client_headers else {}),
            **{name: _plain(name, asdict(part), secrets) for name, part in parts.items() if part is not None},
        }
    return {
        "transport": "stdio",
        "command": mask_text(upstream.command or "", secrets),
        "args": [mask_text(arg, secrets) for arg in upstream.args],
        "env": {name: mask_value(name, value, secrets) for name, value in upstream.env.items()},
        "inherit_env": upstream.inherit_env if isinstance(upstream.inherit_env, bool) else list(upstream.inherit_env),
        "cwd": None if upstream.cwd is None else mask_text(str(upstream.cwd), secrets),
    }


def _plain(key: str, value: object, secrets: frozenset[str]) -> Any:
    if isinstance(value, str | Path):
        return mask_value(key, str(value), secrets)
    if isinstance(value, tuple | list):
        return [_plain(key, item, secrets) for item in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        return {name: _plain(name, item, secrets) for name, item in cast("Mapping[str, object]", value).items()}
    return value
