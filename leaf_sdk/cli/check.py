"""`codec-leaf check`: a server, a bolt-on or a manifest to verdicts, printed as a table or as JSON.

Prints, and decides nothing: the rules are in `leaf_sdk.testing.conformance`. Only what the command line names is ever
contacted. Exit code 1 means that a rule failed.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from leaf_sdk.errors import CodecError
from leaf_sdk.leaf.bolt_on.messages import CALL_PATH
from leaf_sdk.leaf.bolt_on.source import ModelMap
from leaf_sdk.testing.conformance import Report
from leaf_sdk.testing.conformance.manifest import check_manifests

from .targets import model_of

EXIT_FAILED = 1
_UNIX = "unix:"
_STYLES = {"pass": "green", "warn": "yellow", "fail": "bold red", "skip": "dim", "note": "cyan"}

Calls = dict[str, Mapping[str, Any]]


def check(
    target: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET | -- COMMAND...",
            help="An MCP server's address or command, a bolt-on's address (http://host:port/codec/tool/v1/call or "
            "unix:PATH), or a manifest's file or folder.",
        ),
    ],
    maps: Annotated[
        list[str] | None, typer.Option("--map", "-m", help="A map to check ids against, as [MODEL=]SOURCE; repeatable.")
    ] = None,
    call: Annotated[
        list[str] | None,
        typer.Option(help="Call a tool with these arguments, as TOOL='{...}'; repeatable."),
    ] = None,
    token: Annotated[str | None, typer.Option(envvar="CODEC_TOOL_TOKEN", help="The server's bearer token.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for each answer.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check that an MCP server, a bolt-on or a manifest keeps the contract; exit code 1 if a rule fails.

    A tool is called with no arguments if it requires none, with those of --call, or not at all.

    Example: codec-leaf check --map map.json --call 'shout={"text": "hi"}' -- python server.py
    """
    calls = dict(map(_call, call or []))
    models = [model_of(each) for each in maps or []]
    report = _report(target, models, calls, token or None, timeout)
    if as_json:
        typer.echo(json.dumps({"target": " ".join(target), **report.to_fields()}, ensure_ascii=False))
    else:
        _print(report)
    raise typer.Exit(0 if report.good else EXIT_FAILED)


def _report(target: list[str], models: list[ModelMap], calls: Calls, token: str | None, timeout: float) -> Report:
    first = target[0]
    if len(target) == 1 and (Path(first).is_dir() or (Path(first).suffix == ".json" and Path(first).is_file())):
        return check_manifests(first, models)
    try:
        if len(target) == 1 and (first.startswith(_UNIX) or ("://" in first and first.endswith(CALL_PATH))):
            from leaf_sdk.testing.conformance.bolt_on import check_bolt_on

            return check_bolt_on(first, models, calls, token=token, timeout=timeout)
        return _mcp_report(target, models, calls, token, timeout)
    except ModuleNotFoundError as error:
        raise CodecError(
            f"{error.name!r} is not installed; it comes with an extra: pip install 'codec-leaf[mcp]'"
        ) from error


def _mcp_report(target: list[str], models: list[ModelMap], calls: Calls, token: str | None, timeout: float) -> Report:
    import anyio

    from leaf_sdk.testing.conformance.mcp_server import check_command, check_url

    maps = [model.token_map for model in models]
    # mcp logs a traceback for what a server writes besides messages; the verdict says it in one line.
    logging.getLogger("mcp").setLevel(logging.CRITICAL)

    async def checked() -> Report:
        if len(target) == 1 and "://" in target[0]:
            return await check_url(target[0], maps, calls, token=token, timeout=timeout)
        return await check_command(target, maps, calls, environ=dict(os.environ), timeout=timeout)

    return anyio.run(checked)


def _print(report: Report) -> None:
    # No markup and no emoji codes: what a tool said is shown literally.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        for each in report.verdicts:
            typer.echo("\t".join(map(_escaped, (each.outcome, each.tool, each.check, each.detail))))
        typer.echo(report.summary)
        return
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for options in ({"no_wrap": True}, {"no_wrap": True}, {"overflow": "fold", "ratio": 1}):
        table.add_column(**cast("dict[str, Any]", options))
    tool = ""
    for each in report.verdicts:
        if each.tool != tool:
            tool = each.tool
            table.add_row("", Text(_escaped(tool), style="bold cyan"), "")
        table.add_row(Text(each.outcome, style=_STYLES[each.outcome]), each.check, _escaped(each.detail))
    console.print(table)
    console.print(Text(report.summary, style="bold" if report.good else "bold red"))


def _call(text: str) -> tuple[str, Mapping[str, Any]]:
    name, equals, written = text.partition("=")
    try:
        arguments: object = json.loads(written) if equals else None
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: the arguments are not JSON: {error}", param_hint="--call") from error
    if not name or not isinstance(arguments, dict):
        raise typer.BadParameter(f"{text!r} is not of the form TOOL='{{...}}'", param_hint="--call")
    return name, cast("dict[str, Any]", arguments)


def _escaped(text: str) -> str:
    """Escape characters that can't be printed: a terminal would obey control characters."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
