"""The command `codec-gateway`: its sub-commands, and how errors are reported.

A command is in the module of its name, or another package brings it (entry points of `codec_gateway.commands`). Only
the one that runs is loaded: `serve` needs no tables.
Commands raise the gateway's errors; only here do they become one line on stderr and an exit code. Only a command's own
result is printed on stdout.
"""

import errno
import gc
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points, metadata
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Final, cast

import typer

from gateway import __version__
from gateway.cli import exit_codes
from gateway.documentation.pages import own_spelling
from gateway.errors import ConfigError, EngineError, GatewayError, UpstreamError, first_of_ours
from gateway.escape import escape_text

# Descriptors that this process was started with may be a shell's lock or systemd's listening sockets. A third-party
# server that inherits such a socket could answer requests in the gateway's place, and read their tokens. Python closes
# such descriptors in its children; the event loop that the gateway runs on does not.

_FIRST: Final = 3
_OPEN: Final = Path("/proc/self/fd")


def keep_inherited_to_ourselves() -> None:
    """Mark every descriptor from 3 up to be closed in other programs that are started. They stay open here."""
    for path in list(_OPEN.iterdir()):
        number = int(path.name)
        if number >= _FIRST:
            # One of them belonged to the listing itself, and is closed by now.
            with suppress(OSError):
                os.set_inheritable(number, False)


Command = Callable[..., None] | typer.Typer

_COMMANDS: Final = (
    "serve",
    "stdio",
    "check",
    "doctor",
    "status",
    "why",
    "call",
    "parse",
    "token",
    "login",
    "logout",
    "engine",
    "model",
    "health",
    "docs",
)
_REFUSALS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
_GROUPS: Final = ("keys", "pins")
_BROUGHT: Final = "codec_gateway.commands"


def build_app(only: str | None = None) -> typer.Typer:
    """Build the command line with every command, or with the one named `only`; with all if none has that name.

    Raises `ConfigError` if `only` is the command of an extra that is not installed.
    """
    app = typer.Typer(
        name="codec-gateway",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        pretty_exceptions_enable=False,
    )
    app.callback()(_root)
    for name, found in _commands(only):
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name, help=own_spelling().message(getdoc(found) or ""))(found)
    return app


def _commands(only: str | None) -> Iterator[tuple[str, Command]]:
    if only == "--version":
        # Loading all commands takes seconds, and none is asked for.
        return
    own = (*_COMMANDS, *_GROUPS)
    if only in own:
        yield only, _load(only)
        return
    brought = {each.name: each for each in entry_points(group=_BROUGHT)}
    if only in brought:
        yield only, brought[only].load()
        return
    if only in (metadata("codec-gateway").get_all("Provides-Extra") or ()):
        raise ConfigError(f"the command {only!r} is not installed: pip install 'codec-gateway[{only}]'")
    yield from ((name, _load(name)) for name in own)
    yield from ((name, each.load()) for name, each in sorted(brought.items()))


def _load(name: str) -> Command:
    return cast("Command", getattr(import_module(f"gateway.cli.{name}"), name))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        app = build_app(given[0] if given else None)
        gc.freeze()  # what is loaded by now stays: the collector need not walk it
        gc.enable()  # see `__main__.py`
        app(given, standalone_mode=True, prog_name=own_spelling().program)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else exit_codes.FAILED
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except BaseExceptionGroup as group:
        return _report(first_of_ours(group))
    except GatewayError as error:
        return _report(error)
    except OSError as error:
        return _report_system(error)
    return exit_codes.OK


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


def _root(
    # Typer acts on it before it looks for a command: with `--version` alone there is none.
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """An MCP gateway and model server that keeps conversations in token ids, so that the KV cache stays valid."""


def _report(error: GatewayError) -> int:
    typer.echo(f"codec-gateway: {escape_text(own_spelling().message(error.message))}", err=True)
    match error:
        case ConfigError():
            return exit_codes.CONFIG
        case EngineError() | UpstreamError():
            return exit_codes.UNREACHABLE
        case _:
            return exit_codes.FAILED


def _report_system(error: OSError) -> int:
    """Report what the machine refuses, such as a full disk. Any other `OSError` is a bug, and is raised as it is."""
    no_temporary_folder = error.errno == errno.ENOENT and error.filename is None
    if error.errno not in _REFUSALS and not no_temporary_folder:
        raise error
    # What is left of the output would fail once more when Python ends.
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    what = "the output can't be written" if error.filename is None else repr(error.filename)
    words = str(error.strerror) if no_temporary_folder else f"{what}: {error.strerror}"
    typer.echo(f"codec-gateway: {escape_text(words)}", err=True)
    return exit_codes.FAILED


def main() -> None:
    """Run this process's command line, and exit with its code."""
    keep_inherited_to_ourselves()
    sys.exit(run())
