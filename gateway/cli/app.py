"""The command `codec-gateway`: its sub-commands, and what becomes of an error.

Commands raise our errors; here, and nowhere else, they become one line on stderr and an exit code. Nothing but a
command's own result is printed on stdout.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Annotated

import typer
from rich.console import Console

from gateway import __version__
from gateway.cli import exit_codes
from gateway.cli.call import call
from gateway.cli.check import check
from gateway.cli.demo import demo
from gateway.cli.doctor import doctor
from gateway.cli.engine import engine
from gateway.cli.health import health
from gateway.cli.keys import keys
from gateway.cli.parse import parse
from gateway.cli.pins import pins
from gateway.cli.serve import serve
from gateway.cli.status import status
from gateway.cli.stdio import stdio
from gateway.cli.token import token
from gateway.errors import ConfigError, EngineError, GatewayError, UpstreamError
from gateway.observe.escape import escape_text

_COMMANDS: tuple[Callable[..., None], ...] = (
    serve,
    stdio,
    demo,
    check,
    doctor,
    status,
    call,
    parse,
    token,
    engine,
    health,
)


def build_app() -> typer.Typer:
    """The command line, with every command."""
    app = typer.Typer(
        name="codec-gateway",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for command in _COMMANDS:
        app.command(command.__name__)(command)
    app.add_typer(keys, name="keys")
    app.add_typer(pins, name="pins")
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    try:
        build_app()(arguments, standalone_mode=True)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else exit_codes.FAILED
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BaseExceptionGroup as group:
        return _report(_first_of_ours(group))
    except GatewayError as error:
        return _report(error)
    return exit_codes.OK


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


def _root(
    # Typer acts on it before it looks for a command: with `--version` alone there is none.
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and leave.")
    ] = False,
) -> None:
    """A Codec-aware MCP gateway: token ids are the truth from the tool to the model's KV cache."""


def _first_of_ours(group: BaseExceptionGroup[BaseException]) -> GatewayError:
    """The error of ours in a group; a group without one is a fault of the program and keeps its traceback."""
    ours = group.subgroup(GatewayError)
    while isinstance(ours, BaseExceptionGroup):
        ours = ours.exceptions[0]
    if isinstance(ours, GatewayError):
        return ours
    raise group


def _report(error: GatewayError) -> int:
    Console(stderr=True, soft_wrap=True, highlight=False).print(
        f"codec-gateway: {escape_text(error.message)}", markup=False
    )
    match error:
        case ConfigError():
            return exit_codes.CONFIG
        case EngineError() | UpstreamError():
            return exit_codes.UNREACHABLE
        case _:
            return exit_codes.FAILED


def main() -> None:
    """Entry point of the command."""
    sys.exit(run())
