"""The engine over HTTP: any llama.cpp server, as it is released.

Turns `GenerateRequest` into `POST /completion` and its event stream into `Generated` and `GenerationEnd`. It asks for
ids in and ids out (`return_tokens`). Generations have connections of their own (`event_stream.py`) and are read by
`completion_stream.py`, below; questions go by httpx2. It does not know who started the server, nor what the ids mean.
Above: `route.py`, which decides whether this engine may be used.

Server reference: llama.cpp, tools/server/README.md (`/completion`, `/tokenize`, `/apply-template`, `/props`).
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import httpx2

from gateway.engine.completion_stream import CompletionStream
from gateway.engine.event_stream import MAX_LINE, Answer, LineOverLimit, StreamLost, Streams, StreamSilent
from gateway.engine.llama_json import completion_body, expecting, read_facts, refusal
from gateway.engine.protocol import EngineFacts, GenerateRequest, GenerationEnd, GenerationEvent, Message
from gateway.errors import EngineRefused, EngineUnavailable
from leaf_sdk.vocab import TokenMap


class LlamaCpp:
    """Client of one llama.cpp server. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        idle_timeout: float = 60.0,
        token_map: TokenMap | None = None,
    ) -> None:
        self.url = url.rstrip("/")
        self.token_map = token_map
        """The map by which lost ids are found again; without one they are only counted."""
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx2.Timeout(idle_timeout, connect=5.0)
        self._http = httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=timeout, trust_env=False)
        self._streams = Streams(self.url, headers, idle_timeout=idle_timeout)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def facts(self) -> EngineFacts:
        """`GET /props` and `GET /v1/models`, and what the engine puts before an empty prompt."""
        props = await self._get("/props")
        models = await self._get("/v1/models")
        bos = await self._post("/tokenize", {"content": "", "add_special": True})
        with expecting(self.url):
            return read_facts(props, models, bos)

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        """`POST /tokenize`, without BOS."""
        answer = await self._post("/tokenize", {"content": text, "add_special": False, "parse_special": specials})
        with expecting(self.url):
            return [int(token) for token in answer["tokens"]]

    async def apply_template(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> str:
        """`POST /apply-template`: rendered by the engine's own template code, so that it can't differ from it."""
        body: dict[str, Any] = {"messages": list(messages)}
        if tools:
            body["tools"] = list(tools)
        answer = await self._post("/apply-template", body)
        with expecting(self.url):
            return str(answer["prompt"])

    async def healthy(self) -> bool:
        """`GET /health`; 503 while the model is still loading."""
        try:
            response = await self._http.get("/health", timeout=2.0)
        except httpx2.HTTPError:
            return False
        return response.status_code == 200

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        """`POST /completion`, streamed. Leaving the context closes the connection, which cancels the slot's task."""
        with self._errors():
            answer = await self._streams.post("/completion", json.dumps(completion_body(request)).encode())
            try:
                if answer.status != 200:
                    raise refusal(answer.status, await answer.body())
                events = self._events(answer, CompletionStream(self.url, self.token_map, gather=request.gather))
                try:
                    yield events
                finally:
                    await events.aclose()
            finally:
                answer.close()

    async def _events(self, answer: Answer, stream: CompletionStream) -> AsyncGenerator[GenerationEvent]:
        while lines := await answer.lines():
            for event in stream.feed(lines):
                yield event
                if isinstance(event, GenerationEnd):
                    return
        raise EngineUnavailable(f"the engine at {self.url!r} broke off in the middle of its answer; ask again")

    async def _get(self, path: str) -> dict[str, Any]:
        with self._errors():
            return self._object(await self._http.get(path, timeout=10.0))

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        with self._errors():
            return self._object(await self._http.post(path, json=body))

    def _object(self, response: httpx2.Response) -> dict[str, Any]:
        if response.status_code != 200:
            raise refusal(response.status_code, response.content)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineRefused(
                f"{self.url!r} answered {response.url.path!r} with something that is no JSON object; "
                "is a llama.cpp server listening there?",
                status=response.status_code,
            )
        return cast(dict[str, Any], answer)

    @contextmanager
    def _errors(self) -> Generator[None]:
        """The one place where transport errors become ours."""
        if self._http.is_closed:
            # A conversation that waited for a tool while the engine was started again holds the client of before.
            raise EngineUnavailable(f"the engine at {self.url!r} went away in the meantime; ask again")
        try:
            yield
        except (httpx2.TimeoutException, StreamSilent) as error:
            raise EngineUnavailable(f"the engine at {self.url!r} did not answer in time: {error!r}") from error
        except (httpx2.HTTPError, StreamLost) as error:
            raise EngineUnavailable(f"the engine at {self.url!r} can't be reached: {error}") from error
        except LineOverLimit as error:
            raise EngineRefused(f"the engine sent a line of more than {MAX_LINE} characters", 502) from error
