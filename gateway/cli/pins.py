"""`codec-gateway pins`: which tools are not as they were first seen, and taking them as they are now.

Prints what `gateway.proxy.upstream.pins` remembers, and tells it what a person decided. A running gateway follows the
file.
"""

import json as jsonlib
from dataclasses import asdict
from typing import Annotated, Final

import typer

from gateway.cli.terminal import Column, plain_console, print_table, say
from gateway.errors import ConfigError
from gateway.proxy.upstream.pins import PinFile

_SHORT: Final = 12
_COLUMNS: Final = (Column("server"), Column("tool"), Column("first seen", 1), Column("now", 1))

pins = typer.Typer(no_args_is_help=True, help="Show and accept changed tool definitions.")


@pins.command()
def show(json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Print the tools whose definition is not the one first seen, of servers with `pin = "warn"` or `"block"`."""
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
    rows = [(each.server, each.tool, each.pinned[:_SHORT], each.seen[:_SHORT]) for each in changes]
    print_table(console, _COLUMNS, rows)


@pins.command()
def accept(
    server: Annotated[str, typer.Argument(help="The server's name in the configuration.")],
    tool: Annotated[str | None, typer.Argument(help="The tool's own name; all of the server when left out.")] = None,
) -> None:
    """Take definitions as they are now: they are pinned, and a running gateway offers a blocked tool again at once.

    Example: codec-gateway pins accept time get_time
    """
    count = PinFile().accept(server, tool)
    if not count:
        what = f"server {server!r}" if tool is None else f"tool {tool!r} of server {server!r}"
        raise ConfigError(f"no definition of {what} differs from its pin: codec-gateway pins show lists those that do")
    typer.echo(
        "1 definition is pinned as it is now" if count == 1 else f"{count} definitions are pinned as they are now"
    )
