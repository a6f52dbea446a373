"""One tool call from a shell: the server that owns the tool is started, asked, and ended.

Turns a public name and arguments into a raw result. A gateway that runs elsewhere is treated as one more server, whose
names are used as they are. It knows no terminal.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, cast

from gateway.app.sign_ins import open_sign_ins
from gateway.config.address import is_http_url
from gateway.config.model import GatewayConfig, UpstreamConfig
from gateway.engine.start.maps import MapSet, has_no_model, needs_engine, resolve_maps
from gateway.errors import ConfigError, UnknownTool, UpstreamUnavailable
from gateway.observe.metrics import Metrics
from gateway.proxy import Proxy
from gateway.proxy.naming import Naming

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a person wrote: an object, or pairs whose types come from the tool's schema."""

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pairs: Mapping[str, str] = field(default_factory=dict[str, str])

    def fitted(self, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        """The arguments. A pair's value is text if the schema asks for text, else it is read as JSON if it is valid."""
        properties: object = {} if schema is None else schema.get("properties")
        known = cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}
        return {**self.values, **{key: _read(value, known.get(key)) for key, value in self.pairs.items()}}


def remote_config(url: str, token: str | None) -> GatewayConfig:
    """A configuration whose only server is a gateway. Raises `ConfigError`."""
    if not is_http_url(url):
        raise ConfigError(f"--url {url!r}: expected the address of an MCP endpoint, such as http://127.0.0.1:8600/mcp")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    secrets = frozenset[str]() if token is None else frozenset({token})
    gateway = UpstreamConfig(name="gateway", url=url, headers=headers, secrets=secrets, pin="off")
    return GatewayConfig(upstreams=(gateway,), prefix="never")


async def call_once(config: GatewayConfig, name: str, arguments: Arguments, timeout: float | None) -> dict[str, Any]:
    """Make one call; returns the raw result.

    Args:
        name: the tool's public name under this configuration.
        timeout: seconds that the call may take; None: as configured.

    Raises:
        UnknownTool: no server of the configuration can own the name, or none offers it.
        UpstreamUnavailable: the server does not start.
        RpcError: it answered with a JSON-RPC error.
        ConfigError: the token map that a bolt-on would be called with can't be loaded.
    """
    narrowed = _narrowed(config, name)
    async with (
        open_sign_ins(config) as grants,
        Proxy(narrowed, Metrics(), maps=_maps(narrowed), start_wait=inf, grants=grants) as proxy,
    ):
        away = [status for status in proxy.statuses() if status.state != "up"]
        if away and not proxy.tools():
            cause = away[0].last_error or f"not up within {config.limits.start_timeout:g} s (limits.start_timeout)"
            raise UpstreamUnavailable(f"server {away[0].name!r} is not available: {cause}", server=away[0].name)
        if all(entry.name != name for entry in proxy.tools()):
            offered = [entry.name for entry in proxy.tools()]
            more = f" and {len(offered) - _SHOWN} more" if len(offered) > _SHOWN else ""
            raise UnknownTool(f"no tool is called {name!r}: there are {', '.join(offered[:_SHOWN]) or 'none'}{more}")
        # Whoever types the call approves it.
        return await proxy.call(name, arguments.fitted(proxy.input_schema(name)), timeout=timeout, approved=True)


def _maps(config: GatewayConfig) -> MapSet:
    """The maps that bolt-ons may be called with: none if only a running engine could tell. Raises `ConfigError`."""
    has_bolt_ons = any(upstream.manifest is not None for upstream in config.upstreams)
    return resolve_maps(config) if has_bolt_ons and not has_no_model(config) and not needs_engine(config) else MapSet()


def _narrowed(config: GatewayConfig, name: str) -> GatewayConfig:
    """The configuration with only those servers that can own this name. Public names stay the same."""
    naming = Naming(config)
    owners = {server for server, _ in naming.tool_owners(name)}
    if not owners:
        prefixes = ", ".join(f"{naming.prefix(each.name)}..." for each in config.upstreams)
        names = f"names begin with {prefixes}" if prefixes else "there is no server"
        raise UnknownTool(f"no server has a tool called {name!r}: {names}")
    kept = tuple(replace(each, start="eager") for each in config.upstreams if each.name in owners)
    prefix = "always" if naming.prefix(kept[0].name) else "never"
    return replace(config, upstreams=kept, views={}, prefix=prefix)


def _read(text: str, schema: object) -> Any:
    kind: object = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
    if kind == "string":
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
