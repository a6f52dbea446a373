"""Any unmodified llama.cpp server, over HTTP.

Turns `GenerateRequest` into `POST /completion`, with ids in and ids out (`return_tokens`). `http/client.py` does what
all engines share, `questions.py` asks, and `completion_stream.py` reads. It does not know who started the server, nor
what the ids mean.
"""

import json
from collections.abc import Callable

from gateway.engine.interface import GenerateRequest, SlotKeeper, Timings
from gateway.engine.wire.http.client import EngineClient, Sent
from gateway.engine.wire.http.questions import Ask
from gateway.engine.wire.llama_cpp.completion_stream import CompletionStream
from gateway.engine.wire.llama_cpp.json import completion_body
from gateway.engine.wire.llama_cpp.questions import Questions
from leaf_sdk.vocab import TokenMap


class LlamaCpp(Questions, EngineClient):
    """Client of one llama.cpp server. Close it with `aclose`."""

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        idle_timeout: float = 60.0,
        token_map: TokenMap | None = None,
        keep_reasoning: bool = False,
        on_loss: Callable[[], None] = lambda: None,
        on_end: Callable[[Timings], None] = lambda timings: None,
    ) -> None:
        """Ask nothing yet.

        Args:
            url, api_key, idle_timeout, on_loss, on_end: see `EngineClient`.
            token_map: the map whose ids are accepted and by which lost ones are recovered, until `prove` finds one;
                without a map they are only counted.
            keep_reasoning: see `Questions`.
        """
        EngineClient.__init__(
            *(self, url),
            api_key=api_key,
            idle_timeout=idle_timeout,
            token_map=token_map,
            on_loss=on_loss,
            on_end=on_end,
        )
        Questions.__init__(self, self.url, self._ask_anywhere, keep_reasoning=keep_reasoning)

    @property
    def keeper(self) -> SlotKeeper:
        """This client: its slots can be addressed."""
        return self

    def _questions(self, ask: Ask) -> Questions:
        return Questions(self.url, ask, keep_reasoning=self._keep_reasoning)

    def _sent(self, request: GenerateRequest) -> Sent:
        stream = CompletionStream(self.url, self._token_map, request, self._facts and self._facts.vocabulary)
        return Sent("/completion", json.dumps(completion_body(request)).encode(), stream)
