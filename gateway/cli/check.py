"""`codec-gateway check`: the configuration as the gateway would run with it, secrets masked.

Turns a configuration file into a page for a person (sections on a terminal, `key = value` lines in a pipe) or into
JSON: what was set or differs from the default, or everything. It also looks whether the commands of servers exist.
Nothing is started and nothing is contacted. It only prints: `gateway.config` loads and masks, and `app.py` turns a
ConfigError into a line on standard error and an exit code.
"""

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.cli.exit_codes import CONFIG, FAILED, OK
from gateway.config.gateway_config import GatewayConfig
from gateway.config.load import load_config, written_keys
from gateway.config.programs import why_not_startable
from gateway.config.server_files import LISTS
from gateway.config.show import NAMES, SECTIONS, secrets_of, show_config
from gateway.escape import escape_text, mask_text

_SERVERS: Final = "upstreams"
_BESIDE: Final = ("serve", "keys")
"""A path whose default is a file beside the configuration."""
_WHAT_TO_DO: Final = (
    "name a file with --config (the file with the servers of your MCP client works as it is), or write "
    "codec-gateway.toml in this folder"
)


def check(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="mcpServers JSON or TOML (default: codec-gateway.toml here, if there is one)."
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Print every setting, not only those that were set or differ from the default."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print every setting as one JSON object.")] = False,
) -> None:
    """Read the configuration and print the settings that result from it, with secrets masked. Starts nothing.

    Exit code 0: it can be used as it is; 1: the command of a server does not exist; 3: the configuration is wrong.

    Example: codec-gateway check --config ~/.cursor/mcp.json
    """
    broken: dict[str, str] = {}
    settings = load_config(config, broken=broken)
    shown = show_config(settings)
    missing = {each.name: reason for each in settings.upstreams if (reason := why_not_startable(each))}
    secrets = secrets_of(settings)
    missing = {name: mask_text(reason, secrets) for name, reason in missing.items()}
    shown["problems"] = [*broken.values(), *(f"server {name!r}: {reason}" for name, reason in missing.items())]
    if not settings.upstreams and not settings.has_engine and not broken:
        shown["warnings"] = [*shown["warnings"], _WHAT_TO_DO]
    if json:
        typer.echo(jsonlib.dumps(shown, indent=2))
    else:
        _print(shown, None if everything else written_keys(config), _list_of_servers(config))
    raise typer.Exit(CONFIG if broken else FAILED if missing else OK)


def _list_of_servers(config: Path | None) -> str:
    """What the list of servers is called in the file that was named."""
    if config is None or config.suffix.lower() == ".toml":
        return _SERVERS
    text = config.expanduser().read_text(encoding="utf-8", errors="replace")
    return next((name for name in LISTS if f'"{name}"' in text), _SERVERS)


def _print(shown: dict[str, Any], written: frozenset[str] | None, servers: str) -> None:
    if written is not None:
        shown = chosen(shown, written)
    # No markup and no emoji codes: names and paths come from files, and are printed as they are.
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        print_sections(console, shown)
    else:
        typer.echo("\n".join(list_lines(shown, servers)))


def chosen(shown: dict[str, Any], written: frozenset[str]) -> dict[str, Any]:
    """The settings that were set, or differ from the default; servers and warnings are all kept."""
    usual = show_config(GatewayConfig())
    kept: dict[str, Any] = {}
    for name, values in shown.items():
        if name in ("upstreams", "engines", "views", "warnings", "problems"):
            kept[name] = values
        elif not isinstance(values, dict):
            if name in written or values != usual[name]:
                kept[name] = values
        else:
            section = cast("dict[str, Any]", values)
            is_set = {key: f"{name}.{key}" in written and value is not None for key, value in section.items()}
            is_other = {key: value != usual[name][key] and (name, key) != _BESIDE for key, value in section.items()}
            if some := {key: value for key, value in section.items() if is_set[key] or is_other[key]}:
                kept[name] = some
    return kept


def list_lines(shown: dict[str, Any], servers: str = _SERVERS) -> list[str]:
    """One `key = value` line for each setting, the value as JSON; then warnings, problems, and the result.

    `servers`: what the list of servers is called in the user's file.
    """
    keys = {key: servers if key == _SERVERS else key for key in shown if key not in ("warnings", "problems")}
    settings = {name: shown[key] for key, name in keys.items()}
    lines = [f"{key} = {jsonlib.dumps(value)}" for key, value in _flatten(settings, "")]
    lines += [f"# warning: {escape_text(warning)}" for warning in shown["warnings"]]
    lines += [f"# problem: {escape_text(problem)}" for problem in shown["problems"]]
    return [*lines, f"# {_result(shown)}"]


def _result(shown: dict[str, Any]) -> str:
    if shown["problems"]:
        return f"problems: {len(shown['problems'])}"
    number = len(shown[_SERVERS])
    return f"ok: {number} server{'' if number == 1 else 's'}"


def print_sections(console: Console, shown: dict[str, Any]) -> None:
    """Print the settings in sections; what differs from the default is bold, the rest dim."""
    usual = show_config(GatewayConfig())
    for name, server in shown["upstreams"].items():
        _print_section(console, f"server {name}", server, {})
    if not shown["upstreams"]:
        console.print(Text("no servers", style="yellow"))
    for name in SECTIONS:
        if name in shown:
            _print_section(console, name, shown[name], usual[name])
    for name, engine in shown.get("engines", {}).items():
        _print_section(console, f"engines.{name}", engine, usual["engine"])
    for name, view in shown.get("views", {}).items():
        _print_section(console, f"views.{name}", view, {})
    if names := {key: shown[key] for key in NAMES if key in shown}:
        _print_section(console, "names", names, usual)
    for warning in shown["warnings"]:
        console.print(Text(f"! {escape_text(warning)}", style="yellow"))
    for problem in shown["problems"]:
        console.print(Text(f"✗ {escape_text(problem)}", style="red"))
    console.print(Text(_result(shown), style="red" if shown["problems"] else "green"))


def _print_section(console: Console, title: str, values: dict[str, Any], usual: dict[str, Any]) -> None:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in values.items():
        if value not in (None, [], {}) or key in usual:
            same = key in usual and usual[key] == value
            table.add_row(Text(f"  {key}", style="dim"), Text(_show(value), style="dim" if same else "bold"))
    console.print(Text(escape_text(title), style="bold cyan"))
    console.print(table)


def _show(value: object) -> str:
    if value in (None, [], {}):
        return "-"
    match value:
        case list():
            return escape_text(" ".join(map(str, cast("list[object]", value))))
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return "\n".join(escape_text(f"{key}: {item}") for key, item in pairs)
        case _:
            return escape_text(str(value))


def _flatten(values: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        dotted = f"{prefix}{key}"
        is_table = isinstance(value, dict) and bool(cast("object", value))
        flat += _flatten(cast("dict[str, Any]", value), f"{dotted}.") if is_table else [(dotted, value)]
    return flat
