"""`codec-gateway call`: call one tool and print what it answers."""

import json as jsonlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from gateway.app.mcp_services import open_sign_ins
from gateway.cli.exit_codes import FAILED, OK
from gateway.cli.until_signal import run_until_signal
from gateway.config.address import is_http_url
from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.load import load_config
from gateway.config.show import secrets_of
from gateway.engine.start.maps import MapSet, has_no_model, needs_engine, resolve_maps
from gateway.errors import ConfigError, UnknownTool, UpstreamUnavailable
from gateway.escape import WHOLE, escape_text
from gateway.observe.logs import configure_logging
from gateway.observe.metrics import Metrics
from gateway.proxy.naming import Naming
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import OtherPart, read_parts

_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class ToolArguments:
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


async def call_once(
    config: GatewayConfig, name: str, arguments: ToolArguments, timeout: float | None
) -> dict[str, Any]:
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
        return jsonlib.loads(text)
    except (ValueError, RecursionError):
        return text


_LONGEST: Final = 1 << 24
"""Bytes of arguments that are read from standard input."""


def call(
    name: Annotated[str, typer.Argument(metavar="SERVER__TOOL", help="The tool's public name.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGUMENTS]...",
            help="One JSON object, key=value pairs, or - to read JSON from standard input.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here)."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Call through a running gateway (or any MCP server): http://HOST:8600/mcp.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="CODEC_GATEWAY_TOKEN", help="Bearer token for that server.", show_default="none"),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds that the call may take.", show_default="limits.tool_timeout")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as one JSON object.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; the log goes to stderr.")] = "error",
) -> None:
    """Call a tool and print its result: the text as it is, anything else as a line that says what it is.

    In key=value pairs a value is read as the tool's schema says, or as JSON or text if the schema says nothing.

    Exit code 0: it answered; 1: it answered with an error; 4: its server can't be reached.

    Example: codec-gateway call get_time city=Tokyo --config servers.json
    """
    arguments = read_arguments(words or [])
    settings = remote_config(url, token) if url is not None else load_config(config)
    if not settings.upstreams:
        raise ConfigError("no MCP server is configured: name a file with --config, or a running gateway with --url")
    configure_logging(level=log_level, secrets=secrets_of(settings))
    result = run_until_signal(call_once, settings, name, arguments, timeout)
    typer.echo(jsonlib.dumps(result, indent=2, ensure_ascii=False) if json else shown(result))
    raise typer.Exit(FAILED if result.get("isError") is True else OK)


def read_arguments(words: Sequence[str]) -> ToolArguments:
    """Read a tool's arguments from the words of a shell. Raises `typer.BadParameter`."""
    if not words:
        return ToolArguments()
    if list(words) == ["-"]:
        return ToolArguments(_object(_standard_input(), "standard input"))
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return ToolArguments(_object(words[0], "the argument"))
    pairs: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not (key and separator):
            raise typer.BadParameter(f"argument {word!r}: expected key=value, one JSON object, or - for standard input")
        pairs[key] = value
    return ToolArguments(pairs=pairs)


def shown(result: Mapping[str, Any]) -> str:
    """A result as text. If it goes to a terminal, it is escaped, so that it can't contain commands to the terminal."""
    lines = [part.line if isinstance(part, OtherPart) else part.text for part in read_parts(result)]
    text = "\n".join(lines)
    if not is_terminal():
        # Half a surrogate pair can't be encoded.
        return text.encode("utf-8", "replace").decode("utf-8")
    return "\n".join(escape_text(line, WHOLE) for line in text.replace("\t", "    ").splitlines())


def is_terminal() -> bool:
    """Whether what is printed goes to a terminal."""
    return sys.stdout.isatty()


def _standard_input() -> str:
    data = sys.stdin.buffer.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise typer.BadParameter(f"standard input holds more than {_LONGEST} bytes")
    return data.decode("utf-8", "replace")


def _object(text: str, origin: str) -> dict[str, Any]:
    try:
        value: object = jsonlib.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(
            f'{origin} is not JSON ({error}): expected an object, such as \'{{"city": "Tokyo"}}\''
        ) from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{origin} is {type(value).__name__}: expected a JSON object")
    return cast("dict[str, Any]", value)
