"""The command `codec-time-leaf`: the environment to a running server, on stdio or over HTTP, or to bolt-on tools.

If a map that was asked for can't be obtained, the server does not start (exit code 3): a leaf that silently served
plain text would be noticed much later, by its cost. Log lines go to stderr; stdout belongs to MCP.
"""

import argparse
import os
import signal
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from types import FrameType

from leaf_sdk import CodecError, MetaTokenizer, make_meta_tokenizer

from .server import build_server

EXIT_MAP_UNUSABLE = 3
_HELP = """\
An MCP server that tells the time. With a token map it ships token ids beside each text:
  CODEC_MAP_PATH   a Codec map, GGUF file or tokenizer.json, or
  CODEC_MAP_URL    an https address of a Codec map
  CODEC_MAP_HASH   the map's sha256 (codec-leaf map hash FILE prints it)
  CODEC_TOOL_TOKEN the bearer token that callers of --bolt-on must send; required unless HOST is loopback
"""


def main() -> None:
    """Run the server until its client disconnects or somebody presses Ctrl-C."""
    parser = argparse.ArgumentParser(
        prog="codec-time-leaf", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument(
        "--http", metavar="HOST:PORT", type=_address, help="serve Streamable HTTP at /mcp instead of stdio"
    )
    modes.add_argument(
        "--bolt-on",
        metavar="HOST:PORT",
        type=_address,
        help="serve the tools as bolt-ons too, with precached ids (needs CODEC_MAP_PATH)",
    )
    chosen = parser.parse_args()
    if chosen.bolt_on is not None:
        _serve_bolt_on(*chosen.bolt_on)
        return
    address: tuple[str, int] | None = chosen.http
    server = build_server(lambda: datetime.now(UTC), _meta_or_exit(os.environ))
    signal.signal(signal.SIGINT, _leave)
    if address is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host=address[0], port=address[1])


def _serve_bolt_on(host: str, port: int) -> None:
    # Imported here: only bolt-ons need it.
    from leaf_sdk.serve.run import serve_http

    from .bolt_on import open_tools

    path = os.environ.get("CODEC_MAP_PATH")
    try:
        if not path:
            raise CodecError("--bolt-on needs CODEC_MAP_PATH: the model's GGUF file, tokenizer.json or Codec map")
        tools = open_tools(lambda: datetime.now(UTC), [path])
        names, models = (", ".join(each) for each in ([tool.manifest.name for tool in tools], tools[0].models))
        serve_http(
            tools,
            host,
            port,
            token=os.environ.get("CODEC_TOOL_TOKEN") or None,
            on_listening=lambda: _log(f"bolt-on: {names} for {models}"),
        )
    except CodecError as error:
        _log(f"not started: {error.message}")
        sys.exit(EXIT_MAP_UNUSABLE)


def open_meta(environ: Mapping[str, str]) -> MetaTokenizer | None:
    """Open the map that the environment names; None if it names none.

    Raises:
        CodecError: the map can't be obtained, or only some of what names it is set.
    """
    path, url, digest = (environ.get(f"CODEC_MAP_{name}") or None for name in ("PATH", "URL", "HASH"))
    if path is None and url is None and digest is None:
        return None
    if (path is None) == (url is None) or digest is None:
        raise CodecError(
            "expected CODEC_MAP_HASH with exactly one of CODEC_MAP_PATH and CODEC_MAP_URL; "
            "set them, or none of the three to serve plain text"
        )
    return make_meta_tokenizer(map_path=path, map_url=url, map_hash=digest)


def _meta_or_exit(environ: Mapping[str, str]) -> MetaTokenizer | None:
    try:
        meta = open_meta(environ)
    except CodecError as error:
        _log(f"not started: {error.message}")
        sys.exit(EXIT_MAP_UNUSABLE)
    _log(
        f"leaf-mode enabled: {meta.map_id}"
        if meta
        else "leaf-mode disabled: CODEC_MAP_PATH and CODEC_MAP_URL are unset"
    )
    return meta


def _leave(_signal: int, _frame: FrameType | None) -> None:
    """Exit at once: this breaks nothing, and the thread that reads stdin would wait for another line."""
    os._exit(128 + signal.SIGINT)


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not an address, expected HOST:PORT such as 127.0.0.1:8300")
    return host.strip("[]"), int(port)


def _log(line: str) -> None:
    sys.stderr.write(f"[codec-time-leaf] {line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
