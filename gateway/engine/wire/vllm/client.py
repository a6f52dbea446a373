"""Any unmodified vLLM server, or a router in front of several, over HTTP.

Turns `GenerateRequest` into `POST /inference/v1/generate`, or into `/v1/completions` if the server does not have that.
`http/client.py` does what all engines share, `questions.py` asks, and `generate_stream.py` reads. The server renders
templates as ids, which the proven map turns into text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gateway.engine.interface import Activity, GenerateRequest, Message, Options, Proof, Provable, Proven, Timings
from gateway.engine.wire.http.client import EngineClient, Sent
from gateway.engine.wire.http.questions import Ask
from gateway.engine.wire.vllm.generate_stream import GenerateStream
from gateway.engine.wire.vllm.json import COMPLETIONS_PATH, IDS_PATH, SESSION_HEADER, completion_body, ids_body
from gateway.engine.wire.vllm.questions import Questions
from gateway.engine.wire.vllm.rendering import check_rendering, text_of_ids
from gateway.errors import EngineUnavailable
from leaf_sdk.vocab import TokenMap


class Vllm(Questions, EngineClient):
    """Client of one vLLM server. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        idle_timeout: float = 60.0,
        at_once: int,
        served: str | None = None,
        token_map: TokenMap | None = None,
        keep_reasoning: bool = False,
        on_loss: Callable[[], None] = lambda: None,
        on_end: Callable[[Timings], None] = lambda timings: None,
    ) -> None:
        """Ask nothing yet.

        Args:
            url, api_key, idle_timeout, on_loss, on_end: see `EngineClient`.
            at_once: generations that may run at a time, which the server does not report.
            token_map: the map whose ids are accepted, until `prove` finds one.
            served, keep_reasoning: see `Questions`.
        """
        EngineClient.__init__(
            *(self, url),
            api_key=api_key,
            idle_timeout=idle_timeout,
            token_map=token_map,
            on_loss=on_loss,
            on_end=on_end,
            keep_streams=True,
        )
        Questions.__init__(
            *(self, self.url, self._ask_anywhere), at_once=at_once, served=served, keep_reasoning=keep_reasoning
        )
        self._served = ""
        self._takes_ids = True

    async def prove(self, proof: Proof) -> Proven:
        """See `EngineClient.prove`. The template's rendering is proven too, since it consists of ids."""
        return await super().prove(partial(self._whole_proof, proof))

    async def activity(self) -> Activity | None:
        """See `EngineClient.activity`. An idle server has nothing to make progress with, and does not say that."""
        return await super().activity() if self._is_waited_for else None

    async def apply_template(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] = (),
        options: Options | None = None,
    ) -> str:
        """Render with the engine's own template, and turn its ids into text by our map."""
        if self._token_map is None:
            raise EngineUnavailable("vLLM's chat template can't be read before a token map is loaded; try again")
        return text_of_ids(await self.rendered(messages, tools, options), self._token_map)

    async def _whole_proof(self, proof: Proof, questions: Provable) -> Proven:
        proven = await proof(questions)
        asked = questions if isinstance(questions, Questions) else self
        await check_rendering(asked, proven)
        self._served, self._takes_ids = await asked.model(), await asked.takes_ids()
        return proven

    def _questions(self, ask: Ask) -> Questions:
        return Questions(
            *(self.url, ask), at_once=self._at_once, served=self._wanted, keep_reasoning=self._keep_reasoning
        )

    def _sent(self, request: GenerateRequest) -> Sent:
        stream = GenerateStream(self.url, self._token_map, request)
        headers = {SESSION_HEADER: request.session.hex()} if request.session else {}
        path, body = (IDS_PATH, ids_body) if self._takes_ids else (COMPLETIONS_PATH, completion_body)
        return Sent(path, json.dumps(body(request, self._served)).encode(), stream, headers)
