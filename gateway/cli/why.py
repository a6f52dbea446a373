"""`codec-gateway why`: how many prompt tokens of the last requests were cached or recomputed, why, and what helps.

Asks the admin port for its report and prints a line for each request that continued a conversation: reasons, places and
numbers, without any of its text. It decides nothing.
"""

import json as jsonlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from gateway.cli.exit_codes import OK
from gateway.cli.status import AdminPort, ConfigOfServe, admin_address, fetch_report
from gateway.cli.terminal import Cell, Column, plain_console, print_table, say
from gateway.observe.prompt_losses import WORDS, advice_on_loss

_COLUMNS: Final = (
    Column("when"),
    Column("caller", 3),
    Column("prompt tokens", 6, "right"),
    Column("cached", 7, "right"),
    Column("recomputed", 8, "right"),
    Column("reason", 9),
)


def why(
    admin: AdminPort = None,
    config: ConfigOfServe = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as one JSON array.")] = False,
) -> None:
    """Show how many prompt tokens of the last /v1 conversations were cached, how many were recomputed, and why.

    Exit code 0: it was shown; 4: the gateway can't be reached.

    Example: codec-gateway why
    """
    prompts = fetch_report(admin or admin_address(config))["prompts"]
    if json:
        typer.echo(jsonlib.dumps(prompts, indent=2))
    else:
        print_losses(plain_console(), prompts)
    raise typer.Exit(OK)


def print_losses(console: Console, prompts: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of requests, and under it one line of advice for each reason in it."""
    if not prompts:
        say(console, "no request has continued a conversation since the gateway was started")
        return
    print_table(console, _COLUMNS, [list(map(Cell, row_of(each))) for each in prompts])
    for reason in dict.fromkeys(each["reason"] for each in prompts if each["lost"]):
        first = next(each for each in prompts if each["lost"] and each["reason"] == reason)
        say(console, f"{reason}: {WORDS[reason]}; {advice_on_loss(reason, first['message'], first['at'])}")


def row_of(prompt: Mapping[str, Any]) -> tuple[str, ...]:
    """The cells of one request."""
    numbers = (str(prompt[key]) for key in ("prompt_tokens", "cached_tokens", "lost"))
    return (str(prompt["when"])[11:19], str(prompt["caller"]), *numbers, prompt["reason"] if prompt["lost"] else "-")
