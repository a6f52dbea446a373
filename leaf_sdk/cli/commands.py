"""The command `codec-leaf` (extra `cli`): the verbs, and what each group of them is called.

Below: `new`, `precache`, `check`, `serve`, and `maps`, the verbs of `codec-leaf map`. Errors of the SDK end as one line
on stderr and exit code 3; wrong arguments as typer's own message and 2.
"""

import typer

from .check import check
from .maps import map_app
from .new import new
from .precache import precache
from .serve import serve

app = typer.Typer(no_args_is_help=True, add_completion=False, help="Leaf servers, bolt-on tools and token maps.")
app.command()(new)
app.command()(precache)
app.command()(check)
app.command()(serve)
app.add_typer(map_app, name="map")


@app.callback()
def root() -> None:
    """Leaf servers, bolt-on tools and token maps."""
