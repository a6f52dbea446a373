"""What is asked of an engine besides generations, over whatever carries a request: the part that all of them share.

Turns questions into requests and JSON answers into objects. A client asks over any known connection; who proves an
engine asks over one, so that all answers come from the same server.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from gateway.engine.http.answers import object_of

Ask = Callable[[str, str, bytes], Awaitable[tuple[int, bytes]]]
"""Method, path and body of a request to status and body of its answer. Raises the gateway's own errors."""


class JsonQuestions:
    """Questions to one server that speaks JSON."""

    def __init__(self, url: str, kind: str, ask: Ask) -> None:
        """`kind`: what kind of server it is, for errors."""
        self._url = url
        self._kind = kind
        self._ask = ask

    async def embed(
        self, inputs: Sequence[Sequence[int]], encoding_format: str | None, dimensions: int | None
    ) -> dict[str, Any]:
        """`POST /v1/embeddings` of ids; a server that was not started for it refuses."""
        body: dict[str, Any] = {"input": [list(ids) for ids in inputs]}
        said = {"encoding_format": encoding_format, "dimensions": dimensions}
        return await self._post("/v1/embeddings", {**body, **{key: value for key, value in said.items() if value}})

    async def _get(self, path: str) -> dict[str, Any]:
        return object_of(self._url, self._kind, path, *await self._ask("GET", path, b""))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        sent = json.dumps(body).encode()
        return object_of(self._url, self._kind, path, *await self._ask("POST", path, sent))
