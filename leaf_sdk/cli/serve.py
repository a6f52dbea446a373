"""`codec-leaf serve`: a bolt-on that has been built, on standard input and output, over HTTP or on a unix socket.

Prints one line when it listens, and decides nothing: `leaf.bolt_on.source` opens the tools, `leaf_sdk.serve.run` holds
the sockets (extra `mcp`). On Ctrl-C it exits silently: with 0 after it has drained, with 130 on standard input and
output.
"""

import os
import signal
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from leaf_sdk.errors import BoltOnError
from leaf_sdk.leaf.bolt_on import CodecTool, load_tool
from leaf_sdk.leaf.bolt_on.source import open_tools

from .targets import function_of, is_manifest, source_of, tools_of

DEFAULT_ADDRESS = "127.0.0.1:8300"
EXIT_INTERRUPTED = 128 + signal.SIGINT


class McpTransport(Enum):
    """How MCP is served."""

    STDIO = "stdio"
    HTTP = "http"


def serve(
    target: Annotated[
        str, typer.Argument(help="A package with TOOLS, or package:NAME, or a manifest's file or folder.")
    ],
    maps: Annotated[
        list[str], typer.Option("--map", "-m", help="A map or a model's file for which the tools have ids; repeatable.")
    ],
    function: Annotated[
        str | None, typer.Option(help="The function of a manifest's tool, as module:name; a package names its own.")
    ] = None,
    mcp: Annotated[
        McpTransport | None, typer.Option(help="How to serve MCP; stdio unless --http or --unix is given.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve the bolt-on protocol over HTTP, and MCP at /mcp.")
    ] = None,
    unix: Annotated[Path | None, typer.Option(help="Serve the bolt-on protocol on a unix socket.")] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="CODEC_TOOL_TOKEN",
            help="The bearer token that HTTP callers must send; required unless HOST is loopback.",
        ),
    ] = None,
) -> None:
    """Serve a bolt-on that codec-leaf precache has built.

    Example: codec-leaf serve my_tool --map model.gguf --http 127.0.0.1:8300
    """
    address = _address(http or (DEFAULT_ADDRESS if mcp is McpTransport.HTTP else None))
    if sum([mcp is McpTransport.STDIO, address is not None, unix is not None]) > 1:
        raise typer.BadParameter("choose only one of --mcp stdio, --http (or --mcp http) and --unix")
    try:
        from leaf_sdk.serve.run import serve_http, serve_stdio, serve_unix
    except ModuleNotFoundError as error:
        raise BoltOnError(
            f"{error.name!r} is not installed; it comes with an extra: pip install 'codec-leaf[mcp]'"
        ) from error
    tools = _opened(target, function, [source_of(each) for each in maps])
    if address is not None:
        url = "http://{}:{}".format(*address)
        serve_http(tools, *address, token=token or None, on_listening=lambda: _say(tools, url))
    elif unix is not None:
        serve_unix(tools, unix, on_listening=lambda: _say(tools, f"unix:{unix}"))
    else:
        # The thread that reads standard input would wait for another line; exiting at once breaks nothing.
        signal.signal(signal.SIGINT, _leave)
        _say(tools, "standard input and output")
        serve_stdio(tools)


def _opened(target: str, function: str | None, paths: list[str]) -> list[CodecTool]:
    if not is_manifest(target):
        if function is not None:
            raise typer.BadParameter(
                "a package names its own functions; leave this option out", param_hint="--function"
            )
        return open_tools(tools_of(target), paths)
    if function is None:
        raise BoltOnError(f"the tool of manifest {target!r} needs a function; name it with --function module:name")
    return [load_tool(target, function_of(function), paths)]


def _say(tools: list[CodecTool], where: str) -> None:
    names = ", ".join(tool.manifest.name for tool in tools)
    typer.echo(f"codec-leaf: serving {names} for {', '.join(tools[0].models)} on {where}", err=True)


def _leave(_signal: int, _frame: FrameType | None) -> None:
    os._exit(EXIT_INTERRUPTED)


def _address(text: str | None) -> tuple[str, int] | None:
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not an address, expected HOST:PORT such as {DEFAULT_ADDRESS}")
    return host.strip("[]"), int(port)
