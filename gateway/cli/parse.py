"""`codec-gateway parse`: reads a model's output as the gateway does.

Turns text on standard input into a message, as JSON, or into its deltas; or prints the grammar that makes a model write
such calls. For people who want to know why a call was not recognised, and for scripts. `gateway.toolcalls` does the
parsing; nothing is started and nothing is contacted.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from gateway.errors import ConfigError
from gateway.escape import escape_text
from gateway.toolcalls.formats.format import Format, call_grammar
from gateway.toolcalls.formats.registry import AUTO, choose_format
from gateway.toolcalls.parser import join_events, read_events
from gateway.toolcalls.schema.spec import ToolSpec, read_tools
from gateway.toolcalls.stream.output_events import Diagnostic, event_delta

_LONGEST = 1 << 26
"""Bytes that a model's output may have."""

_PIECE = 4
"""Bytes of a piece with `--stream`: about as many as a token has."""


def parse(
    format: Annotated[  # noqa: A002 - the option's name
        str,
        typer.Option(
            "--format", "-f", help="Name of the format (docs/tool-formats.md), or auto: recognised by --template."
        ),
    ] = AUTO,
    tools: Annotated[
        Path | None,
        typer.Option(
            "--tools", help="The request's tools as JSON: a list, or an object with tools (OpenAI's or MCP's)."
        ),
    ] = None,
    template: Annotated[
        Path | None, typer.Option("--template", help="The model's chat template, by which auto recognises the format.")
    ] = None,
    prompt_tail: Annotated[
        str, typer.Option("--prompt-tail", help="The end of the prompt, if it opened or closed reasoning.")
    ] = "",
    stream: Annotated[bool, typer.Option("--stream", help="Print the deltas, one per line.")] = False,
    grammar: Annotated[
        bool, typer.Option("--grammar", help="Print the GBNF grammar of one call of --tools, and read no output.")
    ] = False,
) -> None:
    """Parse a model's output from standard input and print the resulting message as JSON.

    Example: codec-gateway parse --format hermes --tools tools.json < output.txt
    """
    fmt = _format(format, template)
    known = _read_tools(tools)
    if grammar:
        typer.echo(call_grammar(fmt, known, choice="required"), nl=False)
        return
    events = list(_events(fmt, known, prompt_tail, stream=stream))
    if not stream:
        typer.echo(json.dumps(join_events(events).to_openai(), indent=2))
    for event in events:
        if isinstance(event, Diagnostic):
            typer.echo(f"codec-gateway: {event.kind}: {escape_text(event.message)}", err=True)


def _events(fmt: Format, tools: tuple[ToolSpec, ...], prompt_tail: str, *, stream: bool) -> Iterator[Any]:
    text = sys.stdin.buffer.read(_LONGEST + 1)
    if len(text) > _LONGEST:
        raise ConfigError(f"the output is longer than {_LONGEST} bytes: parse a part of it")
    pieces = (text[at : at + _PIECE] for at in range(0, len(text), _PIECE)) if stream else (text,)
    for event in read_events(fmt, pieces, tools, prompt_tail):
        delta = event_delta(event) if stream else None
        if delta is not None:
            typer.echo(json.dumps(delta))
        yield event


def _format(name: str, template: Path | None) -> Format:
    if name == AUTO and template is None:
        typer.echo("codec-gateway: without --template, auto means 'generic': name a format with --format", err=True)
    text = _text_of(template, "--template") if template is not None and name == AUTO else ""
    return choose_format(text, supports_tools=True, wanted=name).format


def _read_tools(path: Path | None) -> tuple[ToolSpec, ...]:
    if path is None:
        return ()
    try:
        found: object = json.loads(_text_of(path, "--tools"))
    except ValueError as error:
        raise ConfigError(f"--tools {str(path)!r} is not JSON ({error}); expected a list of tools") from error
    tools: object = cast("dict[str, object]", found).get("tools") if isinstance(found, dict) else found
    if not isinstance(tools, list):
        raise ConfigError(f'--tools {str(path)!r} holds no list of tools; expected [...] or {{"tools": [...]}}')
    return read_tools(cast("list[dict[str, Any]]", tools))


def _text_of(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option} {str(path)!r} can't be read ({error}); name a text file") from error
