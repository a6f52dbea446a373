"""Tables and lines for people, on a terminal of any width and in a pipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.documentation.pages import own_spelling
from gateway.escape import escape_text

# If there is no room, the columns that matter least are left out, and the caller is told. In a pipe nothing is left out
# or wrapped. Text is never read as markup, since names and words come from files and servers.

_PIPE: Final = 10_000
_GAP: Final = 2
_CELL: Final = 200


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    title: str
    weight: int = 0
    """Columns of the least weight are left out first; those of weight 0 never are."""
    justify: Literal["left", "right"] = "left"


@dataclass(frozen=True, slots=True)
class Cell:
    """A text and its style."""

    text: str
    style: str = ""


def plain_console(*, stderr: bool = False) -> Console:
    """A console that reads no text as markup; in a pipe it is so wide that everything fits."""
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _PIPE
    return console


def print_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[Cell | str]]) -> bool:
    """Print as many columns as fit; returns whether that was all of them."""
    cells = [[cell if isinstance(cell, Cell) else Cell(cell) for cell in row] for row in rows]
    cells = [[Cell(escape_text(cell.text, _CELL), cell.style) for cell in row] for row in cells]
    widths = [
        max([cell_len(column.title), *(cell_len(row[n].text) for row in cells)]) for n, column in enumerate(columns)
    ]
    shown = _fitting(columns, widths, console.width)
    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for n in shown:
        table.add_column(columns[n].title, justify=columns[n].justify, overflow="fold", no_wrap=not console.is_terminal)
    for row in cells:
        table.add_row(*(Text(row[n].text, style=row[n].style) for n in shown))
    console.print(table)
    return len(shown) == len(columns)


def say(console: Console, text: str, style: str = "") -> None:
    """Print one line of untrusted text, its commands spelled for the reader; on a terminal it is wrapped."""
    console.print(Text(escape_text(own_spelling().message(text)), style=style), soft_wrap=not console.is_terminal)


def _fitting(columns: Sequence[Column], widths: Sequence[int], room: int) -> list[int]:
    shown = list(range(len(columns)))
    while sum(widths[n] + _GAP for n in shown) - _GAP > room:
        spare = [n for n in shown if columns[n].weight]
        if not spare:
            break
        # Of several columns of the same weight, the last one goes first.
        shown.remove(min(reversed(spare), key=lambda n: columns[n].weight))
    return shown


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
