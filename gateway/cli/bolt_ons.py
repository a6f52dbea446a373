"""Bolt-on tools as a table: how each is called, and why not with ids.

Turns what `BoltOnStatus` says, as a mapping, into rows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from gateway.cli.terminal import Cell, Column, print_table

_COLUMNS: Final = (
    Column("bolt-on"),
    Column("called with"),
    Column("model", 2),
    Column("at", 3),
    Column("why", 1),
)
_STYLES: Final = {"ids": "green", "text": "yellow", "refused": "red"}
_CALLED: Final = {"ids": "ids", "text": "text", "refused": "not called"}


def print_bolt_ons(console: Console, bolt_ons: Sequence[Mapping[str, Any]]) -> bool:
    """Print the table, if there is anything to print; returns whether all of it fitted."""
    if not bolt_ons:
        return True
    console.print()
    return print_table(console, _COLUMNS, [_row(each) for each in bolt_ons])


def _row(bolt_on: Mapping[str, Any]) -> list[Cell | str]:
    mode: str = bolt_on["mode"]
    return [
        bolt_on["tool"],
        Cell(_CALLED[mode], _STYLES[mode]),
        bolt_on["model"] or "-",
        bolt_on["endpoint"],
        bolt_on["reason"] or "-",
    ]
