"""Odd servers over HTTP, one for each path `/mcp/NUMBER` of one listener: every byte as the behaviour says.

It speaks as much HTTP as clients of MCP need, by hand: no HTTP server would write such responses.
"""

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tests.odd_servers.odd import ODD, Odd

_NO_STREAM = {"status": 405}


def _compressed(body: bytes, kind: str) -> bytes:
    if kind == "gzip":
        return gzip.compress(body)
    if kind == "raw":
        made = zlib.compressobj(wbits=-15)
        return made.compress(body) + made.flush()
    return zlib.compress(body)


class _Site:
    """One odd server."""

    def __init__(self, says: dict[str, Any]) -> None:
        self.odd = Odd(says)
        self.http: dict[str, Any] = says.get("http", {})
        self.turn = 0
        self.kept: list[str] = []
        """Messages that only the GET stream gives."""
        self.came = asyncio.Event()

    def response(self, method: str, head: Mapping[str, str], body: bytes) -> dict[str, Any]:
        """What is sent for a request: status, headers, body and how it is framed."""
        if method == "DELETE":
            return self.http.get("delete", {"status": 200})
        if method == "GET":
            return self.http.get("get", _NO_STREAM)
        message = json.loads(body)
        asked = message.get("method")
        if asked == "initialize":
            self.turn, self.kept = 0, []
        if (refusal := self._refusal(asked, head)) is not None:
            return refusal
        texts = self.odd.texts(message)
        if message.get("id") is None or "method" not in message:
            return self.http.get("notification", {"status": 202})
        if message["method"] not in ODD:
            return {**self.http.get("others", {}), "form": "json", "texts": texts}
        self.turn += 1
        only = self.http.get("only")
        odd = {} if only is not None and message["method"] not in only else self.http
        beside = len(texts) > 1 and "form" not in odd
        made = {"form": "sse" if beside else "json", **odd, "texts": texts, "headers": list(odd.get("headers", ()))}
        if (session := self._session(message["method"])) is not None:
            made["headers"].append([self.http.get("session_header", "Mcp-Session-Id"), session])
        if odd.get("answers_on_get") and message["method"] != "initialize":
            self.kept += texts
            self.came.set()
            return {"status": 202}
        if odd.get("resumes"):
            self.kept = texts
            return {**made, "texts": [], "opening": "id: 7\nretry: 100\ndata:\n\n"}
        return made

    def _session(self, method: str) -> str | None:
        if self.http.get("rotates"):
            return f"turn-{self.turn}"
        wanted = method == "initialize" or self.http.get("repeats_session")
        return self.http.get("session") if wanted else None

    def _refusal(self, asked: object, head: Mapping[str, str]) -> dict[str, Any] | None:
        needed = dict(self.http.get("needs", {}))
        if self.http.get("rotates"):
            needed["mcp-session-id"] = f"turn-{self.turn}"
        if asked in ODD[1:] and any(head.get(name, "") != value for name, value in needed.items()):
            return {"status": 400, "texts": ['{"error": "a header is missing"}']}
        if "redirect" in self.http and not head["path"].endswith("?there"):
            return {"status": self.http["redirect"], "headers": [["Location", head["path"] + "?there"]]}
        return None


def _written(response: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """Head and body of a response."""
    texts: Sequence[str] = response.get("texts", ())
    if response.get("form") == "sse":
        event = response.get("event", "event: message\ndata: {}\n\n")
        stream = response.get("opening", "") + "".join(event.replace("{}", text) for text in texts)
        body = (stream + response.get("closing", "")).replace("\n", response.get("line_end", "\n")).encode()
        kind = "text/event-stream"
    else:
        whole = f"[{','.join(texts)}]" if response.get("batch") else "".join(texts)
        body = f"{response.get('opening', '')}{whole}{response.get('closing', '')}".encode()
        kind = "application/json" if texts else None
    if "body" in response:
        body = response["body"].encode()
    kind = response.get("type", kind)
    headers = [*([["Content-Type", kind]] if kind is not None else []), *response.get("headers", ())]
    if (compress := response.get("compress")) is not None:
        body = _compressed(body, compress)
    framing = response.get("framing", "length")
    if framing == "chunked":
        size = response.get("pieces", len(body) or 1)
        extension, trailer = response.get("extension", ""), response.get("trailer", "")
        parts = [body[begin : begin + size] for begin in range(0, len(body), size)]
        body = b"".join(f"{len(part):x}{extension}\r\n".encode() + part + b"\r\n" for part in parts)
        body += b"" if response.get("stays") else f"0\r\n{trailer}\r\n".encode()
        headers.append(["Transfer-Encoding", response.get("coding", "chunked")])
    elif framing == "length":
        headers += [["Content-Length", str(len(body))]] * response.get("lengths", 1)
    end, colon = response.get("head_end", "\r\n"), response.get("colon", ": ")
    status = f"{response.get('http', 'HTTP/1.1')} {response.get('status', 200)}{response.get('reason', ' Fine')}"
    cased = [[getattr(name, response.get("case", "title"))(), value] for name, value in headers]
    lines = [status, *(f"{name}{colon}{value}" for name, value in cased), "", ""]
    return response.get("interim", "").encode() + end.join(lines).encode(), body


class OddHttp:
    """The listener."""

    def __init__(self, behaviours: Sequence[dict[str, Any]]) -> None:
        self._sites = [_Site(says) for says in behaviours]
        self._behaviours = behaviours
        self.port = 0

    def url(self, number: int) -> str:
        """The address of the server with this behaviour, which begins anew for each client."""
        return f"http://127.0.0.1:{self.port}/mcp/{number}{self._behaviours[number].get('http', {}).get('path', '')}"

    def renew(self) -> None:
        """Forget all that clients said before."""
        self._sites = [_Site(says) for says in self._behaviours]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while await self._serve_one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").strip().split("\r\n")
        method, path, _ = lines[0].split(" ")
        head = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines[1:])}
        body = await reader.readexactly(int(head.get("content-length", "0")))
        site = self._sites[int(path.split("?")[0].split("/")[2])]
        response = site.response(method, {**head, "path": path}, body)
        if response.get("hangs"):
            await anyio.sleep_forever()
        if response.get("gives_kept"):
            return await self._give_kept(site, head, writer)
        start, rest = _written(response)
        writer.write(start + rest)
        await writer.drain()
        if response.get("stays"):
            await anyio.sleep_forever()
        return not (response.get("framing") == "close" or response.get("closes"))

    async def _give_kept(self, site: _Site, head: Mapping[str, str], writer: asyncio.StreamWriter) -> bool:
        """A GET stream that has the answers to POSTs."""
        writer.write(b"HTTP/1.1 200 Fine\r\nContent-Type: text/event-stream\r\n\r\n")
        while True:
            texts, site.kept = site.kept, []
            writer.write("".join(f"data: {text}\n\n" for text in texts).encode())
            await writer.drain()
            if "last-event-id" in head:
                return False
            site.came.clear()
            await site.came.wait()


@asynccontextmanager
async def odd_http(behaviours: Sequence[dict[str, Any]]) -> AsyncGenerator[OddHttp]:
    """Run in this event loop; at the end every connection is cut."""
    servers = OddHttp(behaviours)
    running = set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await servers.serve(reader, writer)
        finally:
            running.discard(task)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0, limit=1 << 22)
    servers.port = listening.sockets[0].getsockname()[1]
    try:
        yield servers
    finally:
        listening.close()
        for task in tuple(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
