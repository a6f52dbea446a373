"""`codec-gateway doctor`: start every server of a configuration, see what it offers and whether it ships ids.

Prints what `gateway.cli.checkup` finds, as a page or as JSON; it decides nothing. The command starts servers
of its own, even while a gateway is running, and ends them when it is done.
"""

import json as jsonlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from gateway.cli.checkup import Checkup, ServerCheck, ToolCheck, check_up
from gateway.cli.exit_codes import FAILED, OK
from gateway.cli.terminal import Cell, Column, plain_console, print_bolt_ons, print_table, say
from gateway.cli.until_signal import run_until_signal
from gateway.config.gateway_config import GatewayConfig
from gateway.config.load import load_config
from gateway.config.show import secrets_of
from gateway.errors import ConfigError
from gateway.observe.logs import configure_logging

_SERVERS: Final = (
    Column("server"),
    Column("reached"),
    Column("seconds", 5, "right"),
    Column("protocol", 4),
    Column("tools", 8, "right"),
    Column("tokens", 7, "right"),
    Column("prompts", 2, "right"),
    Column("resources", 1, "right"),
    Column("ids", 6),
)
_TOOLS: Final = (Column("tool"), Column("tokens", 1, "right"), Column("ids", 3), Column("why", 2))
_WIDER: Final = "(a wider terminal or --json shows more)"
_UNKNOWN: Final = "(ids unknown: the tool was not called, or its result tells nothing; --tools says why)"
_STYLES: Final = {"leaf": "green", "shim": "yellow", "refused": "red", "unknown": "dim"}


def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here)."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="As for `serve`: embedded, none, or the URL of a llama.cpp or vLLM server.")
    ] = None,
    exclusive: Annotated[
        bool, typer.Option("--exclusive", help="As for `serve`: only this gateway generates with that server.")
    ] = False,
    model: Annotated[Path | None, typer.Option(help="As for `serve`: GGUF file of the model.")] = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="List every tool with its cost and who makes its ids.")
    ] = False,
    no_call: Annotated[
        bool, typer.Option("--no-call", help="Call no tools, not even those that change nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; the log goes to stderr.")] = "error",
) -> None:
    """Start every server of the configuration and report what works: connection, protocol, tools, their cost and ids.

    Tools that need no arguments and say that they change nothing are called once: the answer shows whether they ship
    ids.

    Exit code 0: all is well; 1: something is not; 3: the configuration is wrong, or names nothing to examine.

    Example: codec-gateway doctor --config ~/.cursor/mcp.json
    """
    flags = {"engine": engine, "engine.exclusive": exclusive or None, "engine.model": model}
    settings = load_config(config, {name: value for name, value in flags.items() if value is not None})
    if not settings.upstreams and not settings.has_engine:
        where = "here is no codec-gateway.toml" if config is None else f"{str(config)!r} names no server and no engine"
        raise ConfigError(
            f"there is nothing to examine: {where}. Name an engine with --engine, or a file with --config (the file "
            "with the servers of your MCP client works as it is), or ask a running gateway with codec-gateway status"
        )
    configure_logging(level=log_level, secrets=secrets_of(settings))
    found = run_until_signal(_run, settings, not no_call)
    if json:
        typer.echo(jsonlib.dumps({"ok": found.is_well, **asdict(found)}, indent=2))
    else:
        print_checkup(plain_console(), found, tools=tools)
    raise typer.Exit(OK if found.is_well else FAILED)


async def _run(settings: GatewayConfig, may_call: bool) -> Checkup:
    return await check_up(settings, may_call=may_call)


def print_checkup(console: Console, found: Checkup, *, tools: bool) -> None:
    """Print the findings for a person."""
    say(console, f"{'engine':<7}{found.engine}")
    say(console, f"{'maps':<7}{' '.join(f'{map_id[:19]}…' for map_id in found.maps) or 'none: text only'}")
    console.print()
    if found.servers:
        _print_table(console, _SERVERS, [_row(server) for server in found.servers])
    else:
        say(console, "no servers", "yellow")
    bolt_ons = [asdict(each) for server in found.servers for each in server.bolt_ons]
    if not tools and any(tool.ids.word == "unknown" for server in found.servers for tool in server.tools):
        say(console, _UNKNOWN, "dim")
    if not print_bolt_ons(console, bolt_ons):
        say(console, _WIDER, "dim")
    if tools:
        console.print()
        _print_table(console, _TOOLS, [_tool_row(tool) for server in found.servers for tool in server.tools])
    console.print()
    _print_advice(console, found)
    say(
        console, "all is well" if found.is_well else "something is wrong", "bold green" if found.is_well else "bold red"
    )


def _print_advice(console: Console, found: Checkup) -> None:
    for server in found.servers:
        for problem in server.problems:
            say(console, f"✗ {server.name}: {problem}", "red")
        for warning in server.warnings:
            say(console, f"! {server.name}: {warning}", "yellow")
    if any(server.transport == "stdio" and not server.reached for server in found.servers):
        say(console, "(--log-level info also shows what servers write to their logs)", "dim")
    for problem in found.problems:
        say(console, f"✗ {problem}", "red")
    for warning in found.warnings:
        say(console, f"! {warning}", "yellow")


def _print_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Cell | str]]) -> None:
    if not print_table(console, columns, rows):
        say(console, _WIDER, "dim")


def _row(server: ServerCheck) -> list[Cell | str]:
    tokens = sum(tool.tokens for tool in server.tools)
    estimated = any(tool.estimated for tool in server.tools)
    ids = Counter(tool.ids.word for tool in server.tools)
    return [
        server.name,
        Cell("yes", "green") if server.reached else Cell("no", "red"),
        f"{server.seconds:.1f}",
        server.protocol or "-",
        str(len(server.tools)),
        f"~{tokens}" if estimated else str(tokens),
        str(server.prompts),
        str(server.resources),
        ", ".join(f"{count} {word}" for word, count in ids.items()) or "-",
    ]


def _tool_row(tool: ToolCheck) -> list[Cell | str]:
    cost = f"~{tool.tokens}" if tool.estimated else str(tool.tokens)
    return [tool.name, cost, Cell(tool.ids.word, _STYLES[tool.ids.word]), tool.ids.detail]
