"""`codec-gateway check`: the configuration as the gateway would run with it, secrets masked.

Turns a configuration file into a page for a person (sections on a terminal, `key = value` lines in a pipe) or into
JSON. Nothing is started and nothing is contacted. It only prints: `gateway.config` loads and masks, and `app.py` turns
a ConfigError into a line on standard error and an exit code.
"""

import json as jsonlib
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.config.load import load_config
from gateway.config.model import GatewayConfig
from gateway.config.show import show_config
from gateway.observe.escape import escape_text

_SECTIONS = ("engine", "tokens", "limits", "serve", "audit", "trajectories", "telemetry")


def check(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", help="mcpServers JSON or TOML (default: codec-gateway.toml here, if there is one)."
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read the configuration and print the settings that result from it, with secrets masked. Starts nothing.

    Example: codec-gateway check --config ~/.cursor/mcp.json
    """
    shown = show_config(load_config(config))
    if json:
        typer.echo(jsonlib.dumps(shown, indent=2))
        return
    # No markup and no emoji codes: names and paths come from files, and are printed as they are.
    console = Console(markup=False, highlight=False, emoji=False)
    if console.is_terminal:
        print_sections(console, shown)
    else:
        typer.echo("\n".join(list_lines(shown)))


def list_lines(shown: dict[str, Any]) -> list[str]:
    """One `key = value` line for each setting, the value as JSON; then one `# warning:` line for each warning."""
    settings = {key: value for key, value in shown.items() if key != "warnings"}
    lines = [f"{key} = {jsonlib.dumps(value)}" for key, value in _flatten(settings, "")]
    return lines + [f"# warning: {escape_text(warning)}" for warning in shown["warnings"]]


def print_sections(console: Console, shown: dict[str, Any]) -> None:
    """Print the settings in sections; what differs from the default is bold, the rest dim."""
    usual = show_config(GatewayConfig())
    for name, server in shown["upstreams"].items():
        _print_section(console, f"server {name}", server, {})
    if not shown["upstreams"]:
        console.print(Text("no servers", style="yellow"))
    for name in _SECTIONS:
        _print_section(console, name, shown[name], usual[name])
    for name, engine in shown.get("engines", {}).items():
        _print_section(console, f"engines.{name}", engine, usual["engine"])
    _print_section(console, "names", {"separator": shown["separator"]}, {"separator": usual["separator"]})
    for warning in shown["warnings"]:
        console.print(Text(f"! {escape_text(warning)}", style="yellow"))


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
