"""Requests to the running stack: what a client sees, and enough of them that every expression has data.

Speaks MCP and the OpenAI API as plain JSON over HTTP, as any client would, and returns what came back. Knows addresses
and the token, but no containers.
"""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from deploy.check.outcome import Failed

_VERSION: Final = "2026-07-28"
_TIMEOUT: Final = 120.0
IDS_KEY: Final = "ai.codec/leaf-tokenization"


@dataclass(frozen=True, slots=True)
class Client:
    """A caller of the gateway at `url`."""

    url: str
    token: str

    def tool(self, name: str, arguments: dict[str, Any], token_map: str | None = None) -> dict[str, Any]:
        """Call a tool by MCP 2026-07-28; returns the result. Raises `Failed` if the answer is anything else."""
        answer = self.call(name, arguments, token_map)
        if "result" not in answer or answer["result"].get("isError"):
            raise Failed(f"the call of {name} through /mcp came back as {json.dumps(answer)[:500]}")
        return answer["result"]

    def call(self, name: str, arguments: dict[str, Any], token_map: str | None = None) -> dict[str, Any]:
        """Call a tool in the same way; returns the answer, whatever it says."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": _VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "deploy-check", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"name": name, "arguments": arguments, "_meta": meta}
        headers = {"Mcp-Method": "tools/call", "Mcp-Name": name, "MCP-Protocol-Version": _VERSION}
        if token_map is not None:
            headers["X-Codec-Map"] = token_map
        return self.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)

    def chat(self, question: str, **more: Any) -> dict[str, Any]:
        """Send one chat request; returns the answer."""
        body = {"model": "any", "messages": [{"role": "user", "content": question}], "temperature": 0, **more}
        return self.post("/v1/chat/completions", body, {})

    def frames(self, prompt: str, **more: Any) -> bytes:
        """Ask for one completion as a stream of compressed frames; returns the bytes that came."""
        body = {"prompt": prompt, "temperature": 0, "stream_format": "msgpack", **more}
        headers = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        url = f"{self.url}/v1/completions"
        return self._send(urllib.request.Request(url, json.dumps(body).encode(), {**self._headers(), **headers}))

    def map_id(self) -> str:
        """Return the map of the gateway's engine."""
        return self._ask(urllib.request.Request(f"{self.url}/v1/models", headers=self._headers()))["data"][0]["codec"][
            "map_id"
        ]

    def post(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        """Send JSON and read JSON, even from the single event of a stream."""
        content = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        request = urllib.request.Request(
            f"{self.url}{path}", json.dumps(body).encode(), {**self._headers(), **content, **headers}
        )
        return self._ask(request)

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def _ask(self, request: urllib.request.Request) -> dict[str, Any]:
        text = self._send(request).decode()
        data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        return json.loads(data[-1] if data else text)

    def _send(self, request: urllib.request.Request) -> bytes:
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT) as response:
                return response.read()
        except urllib.error.HTTPError as error:
            raise Failed(f"{request.full_url} answered {error.code}: {error.read()[:500]!r}") from None
        except OSError as error:
            raise Failed(f"{request.full_url} did not answer: {error}") from None


def ids_of(result: dict[str, Any]) -> list[int]:
    """Return the ids of a result's first block. Raises `Failed` if it has none."""
    meta = result["content"][0].get("_meta", {}).get(IDS_KEY)
    if not meta:
        raise Failed(f"the result carries no ids: {json.dumps(result)[:500]}")
    return list(meta.get("ids") or meta)
