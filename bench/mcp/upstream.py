"""The MCP server behind every gateway that is measured: it costs next to nothing, so that the gateway's cost shows.

`python -m bench.mcp.upstream stdio|PORT [TOOLS [LEAVES]]`. Speaks both eras, over lines or HTTP. Its tools are called
`text_BYTES` and answer with that many bytes, rendered once; `tool_N` are there to be listed. `LEAVES` names a file with
ids to put beside the texts. `load.py` asks, `peers.py` starts it.
"""

import asyncio
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any, cast

import uvloop

SIZES = (100, 4096, 16_384, 65_536)
_INFO = {"name": "light", "version": "1"}
_MODERN = "io.modelcontextprotocol/protocolVersion"
_WORDS = "The quick brown fox jumps over 13 lazy dogs; all of them saw it (twice), none of them minded.\n"


def text_of(size: int) -> str:
    """Return prose of `size` bytes."""
    return (_WORDS * (size // len(_WORDS) + 1))[:size]


@cache
def _leaves() -> dict[str, Any]:
    return json.loads(Path(sys.argv[3]).read_text(encoding="utf-8")) if len(sys.argv) > 3 else {}


@cache
def _result(method: str, about: str | None, modern: bool) -> bytes:
    """Return the result of a request; there are so few that each is rendered once."""
    extra: dict[str, Any] = {}
    if modern:
        extra = {"resultType": "complete", "_meta": {"io.modelcontextprotocol/serverInfo": _INFO}}
        if method != "tools/call":
            extra |= {"ttlMs": 60_000, "cacheScope": "public"}
    capabilities: dict[str, Any] = {"tools": {}}
    answers: dict[str, dict[str, Any]] = {
        "initialize": {"protocolVersion": about, "capabilities": capabilities, "serverInfo": _INFO},
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": capabilities},
        "tools/list": {"tools": _tools()},
    }
    if method == "tools/call":
        return json.dumps({**_called(str(about)), **extra}).encode()
    return json.dumps({**answers.get(method, {}), **extra}).encode()


def _called(tool: str) -> dict[str, Any]:
    size = tool.removeprefix("text_")
    block: dict[str, Any] = {"type": "text", "text": text_of(int(size))}
    if size in _leaves():
        block["_meta"] = _leaves()[size]
    return {"content": [block], "isError": False}


def _tools() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": "What to say."}}}
    sized = [f"text_{size}" for size in SIZES]
    names = [*sized, *(f"tool_{number}" for number in range(_count() - len(sized)))]
    told = "A description of the tool that is about as long as descriptions are. " * 3
    return [{"name": name, "description": told, "inputSchema": schema} for name in names]


def _count() -> int:
    return int(sys.argv[2]) if len(sys.argv) > 2 else len(SIZES)


def answer(line: bytes) -> bytes | None:
    """Return the answer to one message; None if it needs none."""
    message: dict[str, Any] = json.loads(line)
    if "id" not in message or "method" not in message:
        return None
    params: dict[str, Any] = message.get("params") or {}
    modern = _MODERN in params.get("_meta", {})
    if message["method"] == "server/discover" and not modern:
        result = b'"error":{"code":-32601,"message":"Method not found"}'
    else:
        # `initialize` is answered in whichever version the gateway asks for: some know only older ones.
        about = params["protocolVersion"] if message["method"] == "initialize" else params.get("name")
        result = b'"result":' + _result(message["method"], about, modern)
    return b'{"jsonrpc":"2.0","id":' + json.dumps(message["id"]).encode() + b"," + result + b"}"


class _Http(asyncio.Protocol):
    def __init__(self) -> None:
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not subclasses of asyncio's.
        self._out = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._held += data
        while (end := self._held.find(b"\r\n\r\n")) >= 0:
            head = self._held[:end].lower()
            at = head.find(b"content-length:")
            length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
            if len(self._held) < end + 4 + length:
                return
            body = self._held[end + 4 : end + 4 + length]
            self._held = self._held[end + 4 + length :]
            self._out.write(self._reply(head, body))

    def _reply(self, head: bytes, body: bytes) -> bytes:
        if not head.startswith(b"post"):
            return b"HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n"
        out = answer(body)
        if out is None:
            return b"HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n"
        session = b"mcp-session-id: one\r\n" if b'"initialize"' in body else b""
        return (
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n" % (session, len(out))
        ) + out


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Http, "127.0.0.1", port)
    await server.serve_forever()


def main() -> None:
    """Serve on a port, or on standard input and output."""
    if sys.argv[1] != "stdio":
        uvloop.run(_serve(int(sys.argv[1])))
        return
    out = sys.stdout.buffer
    for line in sys.stdin.buffer:
        reply = answer(line)
        if reply is not None:
            out.write(reply + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
