"""`codec-gateway docs`: prints a page of the documentation, or lists the pages.

On a terminal a page is rendered; in a pipe it is the Markdown itself. The pages are those of this version, so nothing
is fetched. `gateway.documentation` finds them and spells their commands for this installation.
"""

import posixpath
import sys
from pathlib import PurePosixPath
from typing import Annotated, Final

import typer
from rich.markdown import Markdown

from gateway.cli.terminal import Cell, Column, plain_console, print_table
from gateway.documentation.pages import Pages, open_pages, own_spelling, print_form

_WIDEST: Final = 100
_FOLDERS: Final = ("docs", "docs/clients", "docs/agents", "examples", "docs/adr")
"""Listed in this order; any other folder follows."""
_COLUMNS: Final = (Column("page"), Column("title"))


def docs(
    page: Annotated[
        str | None,
        typer.Argument(metavar="[PAGE]", help="Name of a page, such as operate; without one, all pages are listed."),
    ] = None,
    path: Annotated[bool, typer.Option("--path", help="Print the path of the page's file instead.")] = False,
) -> None:
    """Print a page of the documentation, or list all pages. A running gateway serves the same pages at /docs/.

    Example: codec-gateway docs index
    """
    pages = open_pages()
    name = None if page is None else pages.find(page)
    if path:
        typer.echo(pages.root if name is None else pages.path(name))
    elif name is None:
        _list(pages)
    else:
        _print(pages, name)


def _list(pages: Pages) -> None:
    spelling = own_spelling()
    folders = {posixpath.dirname(path) for path in pages.files.values()}
    ordered = [*_FOLDERS, *sorted(folders.difference(_FOLDERS))]
    rows = [(Cell(name, "bold"), pages.title(name)) for folder in ordered for name in pages.of_folder(folder)]
    print_table(plain_console(), _COLUMNS, rows)
    typer.echo(f"\nPrint one with: {spelling.program} docs PAGE")


def _print(pages: Pages, name: str) -> None:
    file = pages.path(name)
    if PurePosixPath(pages.files[name]).suffix in (".png", ".svg"):
        typer.echo(file)  # a picture: where it is
        return
    text = print_form(pages, name, own_spelling())
    console = plain_console()
    if console.is_terminal and file.suffix == ".md":
        console.print(Markdown(text, hyperlinks=False), width=min(console.width, _WIDEST))
    else:
        sys.stdout.write(text)
