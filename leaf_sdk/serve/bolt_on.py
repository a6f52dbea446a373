"""Bolt-on tools over HTTP: `POST /codec/tool/v1/call` with msgpack in and out, and the manifests to read.

An ASGI app without a framework; `run` has the sockets, `leaf.bolt_on.messages` the messages. A call that can be read is
answered with 200 and a result, which may be an error; other status codes only say that a call could not be read. The
media type keeps web pages out: their browser would have to ask for permission first, which is never given.
"""

import hmac
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

from leaf_sdk.errors import CallInvalid
from leaf_sdk.leaf.bolt_on import CALL_PATH, CodecTool, CodecToolCall, CodecToolResult, ToolRefusal
from leaf_sdk.leaf.bolt_on.messages import MANIFEST_PATH, MAX_CALL_BYTES, MEDIA_TYPE

from .running import run_tool

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_Answer = tuple[int, str, bytes]


class CallApp:
    """The ASGI app of some tools. Requests to other paths than its own go to `rest`."""

    def __init__(
        self,
        tools: Iterable[CodecTool],
        *,
        token: str | None = None,
        rest: Callable[[Scope, Receive, Send], Awaitable[None]] | None = None,
    ) -> None:
        """Take the tools; nothing is opened yet.

        Args:
            tools: served under the names in their manifests.
            token: what callers must send as a bearer token; None if none is required.
            rest: an ASGI app for all other paths, with the same token, and for the server's lifespan.
        """
        self._tools = {tool.manifest.name: tool for tool in tools}
        self._token = token
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if self._rest is not None:
                await self._rest(scope, receive, send)
            return
        path: str = scope["path"]
        headers = {name.lower(): value for name, value in scope["headers"]}
        if not self._may(headers):
            await _send(send, (401, "text/plain", b"expected Authorization: Bearer <the server's token>\n"))
        elif path == CALL_PATH and scope["method"] == "POST":
            await _send(send, await self._called(headers, receive))
        elif path.startswith(MANIFEST_PATH) and scope["method"] == "GET":
            await _send(send, self._manifest(path.removeprefix(MANIFEST_PATH)))
        elif self._rest is not None and path != CALL_PATH:
            await self._rest(scope, receive, send)
        else:
            await _send(send, (404, "text/plain", f"expected POST {CALL_PATH}\n".encode()))

    async def answer(self, call: CodecToolCall) -> CodecToolResult:
        """Answer one call, whatever it contains."""
        tool = self._tools.get(call.name)
        if tool is None:
            message = f"no tool {call.name!r:.60} here, expected one of {sorted(self._tools)}"
            return CodecToolResult.failed(call.call_id, message, "E_UNKNOWN_TOOL")
        try:
            output = await run_tool(tool, tool.arguments(call))
        except (CallInvalid, ToolRefusal) as refusal:
            return CodecToolResult.failed(call.call_id, refusal.message, refusal.code)
        return tool.answer(call, output)

    def _may(self, headers: Mapping[bytes, bytes]) -> bool:
        if self._token is None:
            return True
        return hmac.compare_digest(headers.get(b"authorization", b""), b"Bearer " + self._token.encode())

    async def _called(self, headers: Mapping[bytes, bytes], receive: Receive) -> _Answer:
        if headers.get(b"content-type", b"").split(b";")[0].strip() != MEDIA_TYPE.encode():
            return 415, "text/plain", f"expected Content-Type: {MEDIA_TYPE}\n".encode()
        body = await _body(receive)
        if body is None:
            return 413, "text/plain", f"expected at most {MAX_CALL_BYTES} bytes\n".encode()
        try:
            call = CodecToolCall.from_bytes(body)
        except CallInvalid as error:
            return 400, "text/plain", error.message.encode("utf-8", "replace") + b"\n"
        result = await self.answer(call)
        return 200, MEDIA_TYPE, result.to_bytes(call.dialect)

    def _manifest(self, name: str) -> _Answer:
        if not name:
            return 200, "application/json", json.dumps({"tools": list(self._tools)}, ensure_ascii=False).encode()
        tool = self._tools.get(name)
        if tool is None:
            return 404, "text/plain", b"no tool of that name here\n"
        return 200, "application/json", json.dumps(tool.manifest.to_fields(), ensure_ascii=False).encode()


async def _body(receive: Receive) -> bytes | None:
    """Read a body; None if it is larger than a call may be, or its sender disconnected."""
    data = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        data += message.get("body", b"")
        if len(data) > MAX_CALL_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(data)


async def _send(send: Send, answer: _Answer) -> None:
    status, media_type, body = answer
    headers = [(b"content-type", media_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
