"""`codec-gateway health`: whether a running gateway takes requests, as an exit code.

For scripts and supervisors: one question to the admin port, one line, one code. `probe.py` asks; containers call that
module itself, since it starts in a twentieth of the time. `status` says more.
"""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.probe import ask, url_of
from gateway.config.load import load_config
from gateway.observe.escape import escape_text


def health(
    url: Annotated[
        str | None,
        typer.Argument(metavar="[URL]", help="What to ask; the path is /healthz/ready unless it says another."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="What `serve` is given, to find the admin port (codec-gateway.toml here)."),
    ] = None,
) -> None:
    """Ask a running gateway whether it is ready. In a container `python -m gateway.cli.probe` is the same, and quicker.

    Exit code 0: it is ready; 1: it is not; 4: it can't be reached.

    Example: codec-gateway health http://127.0.0.1:8601
    """
    answer = ask(url or _admin(config))
    typer.echo(escape_text(answer.words), err=answer.code != 0)
    raise typer.Exit(answer.code)


def _admin(config: Path | None) -> str:
    serve = load_config(config).serve
    return url_of(serve.admin_host, serve.admin_port)
