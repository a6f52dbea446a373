"""A user of a gateway, who has a key, a browser and an MCP client."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from html import unescape
from itertools import count
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitResult

from tests.oauth.browser import agree

_LINK = re.compile(r"href='([^']+)'")
_VERSION = "2025-11-25"


class User:
    def __init__(self, origin: str, key: str, browser: httpx2.AsyncClient, client: httpx2.AsyncClient) -> None:
        self.callback = f"{origin}/sign-in/callback"
        self._origin = origin
        self._key = key
        self._browser = browser
        self._client = client
        self._ids = count(1)

    @classmethod
    @asynccontextmanager
    async def open(cls, port: int, key: str) -> AsyncGenerator["User"]:
        """A user whose client has begun its session."""
        origin = f"http://127.0.0.1:{port}"
        headers = {"authorization": f"Bearer {key}", "accept": "application/json, text/event-stream"}
        async with (
            httpx2.AsyncClient(timeout=60) as browser,
            httpx2.AsyncClient(base_url=origin, headers=headers, timeout=60) as client,
        ):
            user = cls(origin, key, browser, client)
            info = {"name": "user", "version": "1"}
            begun = await user._post("initialize", protocolVersion=_VERSION, capabilities={}, clientInfo=info)
            client.headers["mcp-session-id"] = begun.headers["mcp-session-id"]
            client.headers["mcp-protocol-version"] = _VERSION
            yield user

    def renew(self, credential: str) -> None:
        """Send another credential from now on."""
        self._client.headers["authorization"] = f"Bearer {credential}"

    async def begin(self, server: str) -> str:
        """The address at which the gateway's page sends them."""
        page = await self._browser.post(
            f"{self._origin}/sign-in",
            params={"server": server},
            data={"key": self._key},
            headers={"origin": self._origin},
        )
        return unescape(_LINK.findall(page.text)[0])

    async def show(self, address: str) -> int:
        """The status of a page."""
        return (await self._browser.get(address)).status_code

    async def call_by_sdk(self, tool: str, mode: Any, name: str) -> tuple[list[str], str]:
        """What a tool says to the client of the `mcp` SDK, after this person signed in at each page that it opened."""
        opened: list[str] = []

        async def sign_in(_: object, params: Any) -> ElicitResult:
            opened.append(params.url)
            end = await agree(await self.begin(params.url.rpartition("=")[2]), self.callback, person=name)
            await self.show(end)
            return ElicitResult(action="accept")

        async with httpx2.AsyncClient(headers={"authorization": f"Bearer {self._key}"}, timeout=60) as http:
            transport = streamable_http_client(f"{self._origin}/mcp", http_client=http)
            async with Client(transport, mode=mode, elicitation_callback=sign_in) as client:
                result = await client.call_tool(tool, {})
        return opened, result.content[0].text

    async def call(self, tool: str) -> str:
        """What a tool says."""
        answer = (await self._post("tools/call", name=tool, arguments={})).text
        data = answer[answer.index("{") :]
        result: dict[str, Any] = json.JSONDecoder().raw_decode(data)[0]
        return str(result["result"]["content"][0]["text"]) if "result" in result else str(result["error"]["message"])

    async def _post(self, method: str, **params: Any) -> httpx2.Response:
        message = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}
        return await self._client.post("/mcp", json=message)
