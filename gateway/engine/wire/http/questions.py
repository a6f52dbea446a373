"""Requests to an engine other than generations, regardless of the connection: the part that all engines share.

Turns questions into requests and JSON answers into objects. A client asks over any checked connection; a proof asks
over a single one, so that all answers come from the same server.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.engine.wire.http.answers import object_of

Ask = Callable[[str, str, bytes], Awaitable[tuple[int, bytes]]]
"""Sends a request of this method, path and body; returns the answer's status and body. Raises the gateway's errors."""


class JsonQuestions:
    """Questions to one server that speaks JSON."""

    def __init__(self, url: str, kind: str, ask: Ask) -> None:
        """`kind`: the kind of server, for errors."""
        self._url = url
        self._kind = kind
        self._ask = ask

    async def embed(
        self, inputs: Sequence[Sequence[int]], encoding_format: str | None, dimensions: int | None
    ) -> dict[str, Any]:
        """`POST /v1/embeddings` with ids; a server that was not started for embeddings refuses."""
        body: dict[str, Any] = {"input": [list(ids) for ids in inputs]}
        said = {"encoding_format": encoding_format, "dimensions": dimensions}
        answer = await self._post("/v1/embeddings", {**body, **{key: value for key, value in said.items() if value}})
        sent = sum(map(len, inputs))
        return {**answer, "usage": {"prompt_tokens": sent, "total_tokens": sent}}

    async def _get(self, path: str) -> dict[str, Any]:
        return object_of(self._url, self._kind, path, *await self._ask("GET", path, b""))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent = json.dumps(body).encode()
        return object_of(self._url, self._kind, path, *await self._ask("POST", path, sent))
