"""`codec-gateway pins`: shows which tools have changed since they were first seen, and accepts them as they are now.

Prints what `gateway.proxy.upstream.items.tool_pins` remembers, with the differences that the console shows, and tells
it what a person has decided. A running gateway follows the file.
"""

import json as jsonlib
import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from gateway.cli.terminal import Column, plain_console, print_table, say
from gateway.config.load import load_config
from gateway.config.show import secrets_of
from gateway.errors import ConfigError
from gateway.proxy.upstream.items.tool_pins import PinChange, PinFile
from gateway.serve.admin.definition_difference import difference

_SHORT: Final = 12
_STYLES: Final = {"ins": "green", "del": "red", "": "dim"}
_COLUMNS: Final = (Column("server"), Column("tool"), Column("first seen", 1), Column("now", 1))

pins = typer.Typer(no_args_is_help=True, help="Show and accept changed tool definitions.")


@pins.command()
def show(
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="The configuration of `serve`, whose secrets are masked (default: codec-gateway.toml here).",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, with digests instead of differences.")
    ] = False,
) -> None:
    """Print the tools whose definition has changed since it was first seen, of servers with `pin` = `warn` or `block`.

    The changed lines of each definition are printed as well.
    """
    file = PinFile()
    changes = file.changes()
    if json:
        typer.echo(jsonlib.dumps({"file": str(file.path), "changed": [asdict(each) for each in changes]}, indent=2))
        return
    console = plain_console()
    if not changes:
        known = sum(map(len, file.read().values()))
        say(console, f"no tool has changed; {known} are pinned" if known else 'nothing is pinned: set pin = "warn"')
        return
    kept, secrets = file.definitions.read(), secrets_of(load_config(config))
    rows = [(each.server, each.tool, each.pinned[:_SHORT], each.seen[:_SHORT]) for each in changes]
    print_table(console, _COLUMNS, rows)
    for change in changes:
        _print_change(console, change, kept, secrets)


def _print_change(
    console: Console, change: PinChange, kept: Mapping[str, dict[str, Any]], secrets: frozenset[str]
) -> None:
    say(console, "")
    say(console, f"{change.tool} of {change.server}", "bold")
    was, now = kept.get(change.pinned), kept.get(change.seen)
    if was is None or now is None:
        say(console, "the earlier definition was not kept: it was pinned by an earlier version, or is too long")
    else:
        for line in difference(was, now, secrets):
            say(console, line.text, _STYLES[line.kind])
    say(console, f"codec-gateway pins accept {change.server} {shlex.quote(change.tool)}")


@pins.command()
def accept(
    server: Annotated[str, typer.Argument(help="The server's name in the configuration.")],
    tool: Annotated[
        str | None, typer.Argument(help="The tool's own name; without it, all tools of the server.")
    ] = None,
) -> None:
    """Accept definitions as they are now: they are pinned, and a running gateway offers a blocked tool again at once.

    Example: codec-gateway pins accept time get_time
    """
    count = PinFile().accept(server, tool)
    if not count:
        what = f"server {server!r}" if tool is None else f"tool {tool!r} of server {server!r}"
        raise ConfigError(f"no definition of {what} differs from its pin: codec-gateway pins show lists those that do")
    typer.echo(
        "1 definition is pinned as it is now" if count == 1 else f"{count} definitions are pinned as they are now"
    )
