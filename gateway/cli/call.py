"""`codec-gateway call`: call one tool and print what it answers.

Turns words from a shell into one `tools/call`, through the servers of a configuration (only the one that owns the tool
is started) or through a running gateway. It only prints; `gateway.cli.diagnose.one_call` makes the call. `app.py` turns
errors into a line and an exit code.
"""

import json as jsonlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, cast

import typer

from gateway.cli.diagnose.one_call import Arguments, call_once, remote_config
from gateway.cli.exit_codes import FAILED, OK
from gateway.cli.until_signal import run_until_signal
from gateway.config.load import load_config
from gateway.config.show import secrets_of
from gateway.errors import ConfigError
from gateway.observe.escape import WHOLE, escape_text
from gateway.observe.logs import configure_logging
from gateway.proxy.result_tokens import OtherPart, read_parts

_LONGEST: Final = 1 << 24
"""Bytes of arguments that are read from standard input."""


def call(
    name: Annotated[str, typer.Argument(metavar="SERVER__TOOL", help="The tool's public name.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ARGUMENTS]...",
            help="One JSON object, key=value pairs, or - to read JSON from standard input.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", help="The configuration of `serve` (default: codec-gateway.toml here)."),
    ] = None,
    url: Annotated[
        str | None, typer.Option(help="Call through a running gateway (or any MCP server): http://HOST:8600/mcp.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="CODEC_GATEWAY_TOKEN", help="Bearer token for that server.", show_default="none"),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(min=0.1, help="Seconds that the call may take.", show_default="limits.tool_timeout")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the whole result as one JSON object.")] = False,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error; the log goes to stderr.")] = "error",
) -> None:
    """Call a tool and print its result: the text as it is, anything else as a line that says what it is.

    In key=value pairs a value is read as the tool's schema says, or as JSON or text if the schema says nothing.

    Exit code 0: it answered; 1: it answered with an error; 4: its server can't be reached.

    Example: codec-gateway call get_time city=Tokyo --config servers.json
    """
    arguments = read_arguments(words or [])
    settings = remote_config(url, token) if url is not None else load_config(config)
    if not settings.upstreams:
        raise ConfigError("no MCP server is configured: name a file with --config, or a running gateway with --url")
    configure_logging(level=log_level, secrets=secrets_of(settings))
    result = run_until_signal(call_once, settings, name, arguments, timeout)
    typer.echo(jsonlib.dumps(result, indent=2, ensure_ascii=False) if json else shown(result))
    raise typer.Exit(FAILED if result.get("isError") is True else OK)


def read_arguments(words: Sequence[str]) -> Arguments:
    """Read a tool's arguments from the words of a shell. Raises `typer.BadParameter`."""
    if not words:
        return Arguments()
    if list(words) == ["-"]:
        return Arguments(_object(_standard_input(), "standard input"))
    if len(words) == 1 and words[0].lstrip().startswith("{"):
        return Arguments(_object(words[0], "the argument"))
    pairs: dict[str, str] = {}
    for word in words:
        key, separator, value = word.partition("=")
        if not (key and separator):
            raise typer.BadParameter(f"argument {word!r}: expected key=value, one JSON object, or - for standard input")
        pairs[key] = value
    return Arguments(pairs=pairs)


def shown(result: Mapping[str, Any]) -> str:
    """A result as text. If it goes to a terminal, it is escaped, so that it can't contain commands to the terminal."""
    lines = [part.line if isinstance(part, OtherPart) else part.text for part in read_parts(result)]
    text = "\n".join(lines)
    if not is_terminal():
        # Half a surrogate pair can't be encoded.
        return text.encode("utf-8", "replace").decode("utf-8")
    return "\n".join(escape_text(line, WHOLE) for line in text.replace("\t", "    ").splitlines())


def is_terminal() -> bool:
    """Whether what is printed goes to a terminal."""
    return sys.stdout.isatty()


def _standard_input() -> str:
    data = sys.stdin.buffer.read(_LONGEST + 1)
    if len(data) > _LONGEST:
        raise typer.BadParameter(f"standard input holds more than {_LONGEST} bytes")
    return data.decode("utf-8", "replace")


def _object(text: str, origin: str) -> dict[str, Any]:
    try:
        value: object = jsonlib.loads(text)
    except (ValueError, RecursionError) as error:
        raise typer.BadParameter(
            f'{origin} is not JSON ({error}): expected an object, such as \'{{"city": "Tokyo"}}\''
        ) from None
    if not isinstance(value, dict):
        raise typer.BadParameter(f"{origin} is {type(value).__name__}: expected a JSON object")
    return cast("dict[str, Any]", value)
