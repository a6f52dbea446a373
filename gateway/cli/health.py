"""`codec-gateway health`: whether a running gateway takes requests, as an exit code.

For scripts and supervisors: one question to the admin port, one line, one code. `probe.py` asks; containers run that
module directly, since it starts in a twentieth of the time. `status` says more.
"""

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.probe import ask, url_of
from gateway.config.load import load_config
from gateway.escape import escape_text


def health(
    url: Annotated[
        str | None,
        typer.Argument(metavar="[URL]", help="Address to ask; its path is /healthz/ready unless another is given."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            help="The configuration of `serve`, to find the admin port (default: codec-gateway.toml here).",
        ),
    ] = None,
) -> None:
    """Ask a running gateway if it is ready. In a container, `python -m gateway.cli.probe` does the same, but faster.

    Exit code 0: it is ready; 1: it is not; 4: it can't be reached.

    Example: codec-gateway health http://127.0.0.1:8601
    """
    answer = ask(url or _admin(config))
    typer.echo(escape_text(answer.words), err=answer.code != 0)
    raise typer.Exit(answer.code)


def _admin(config: Path | None) -> str:
    serve = load_config(config).serve
    return url_of(serve.admin_host, serve.admin_port)
