"""The command `codec-leaf` (extra `cli`): its verbs, and the name of each group of them.

Errors of the SDK end as one line on stderr and exit code 3; wrong arguments as typer's own message and 2.
"""

from importlib.metadata import version
from typing import Annotated

import typer

from .check import check
from .maps import map_app
from .new import new
from .precache import precache
from .serve import serve

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(new)
app.command()(precache)
app.command()(check)
app.command()(serve)
app.add_typer(map_app, name="map")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"codec-leaf {version('codec-leaf')}")
        raise typer.Exit


@app.callback()
def root(
    # Typer acts on it before it looks for a command: with `--version` alone there is none.
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Leaf servers, bolt-on tools and token maps."""
