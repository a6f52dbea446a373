"""A completion in OpenAI's older shape (`text_completion`): chunks as it is generated, or whole.

With `return_token_ids` a choice also has `token_ids`, and the first one `prompt_token_ids`, named as in vLLM; ids are
sent with the text that follows them. Pure.
"""

import secrets
from collections.abc import Sequence

from gateway.agent.events import AgentEvent, Finished, IdsGenerated
from gateway.serve.generation.form import Chunk
from gateway.serve.openai.chat_reply import usage_of
from gateway.serve.openai.form import OpenAiReply
from gateway.toolcalls import Content


class CompletionReply(OpenAiReply):
    """The reply to one request. `created`: seconds since the epoch."""

    def __init__(self, model: str, created: int, *, usage_chunk: bool, prompt_ids: Sequence[int] | None = None) -> None:
        """`prompt_ids`: None unless the client wants ids."""
        self._head: Chunk = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": created,
            "model": model,
        }
        self._usage_chunk = usage_chunk
        self._prompt_ids = prompt_ids
        self._told_prompt = False
        self._pending: list[int] = []
        self._text: list[str] = []
        self._ids: list[int] = []
        self._finished: Finished | None = None

    def begin(self) -> list[Chunk]:
        """Return no chunks: nothing comes before the first text."""
        return []

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks to send for one event."""
        match event:
            case Content(text):
                self._text.append(text)
                return [self._chunk(text)]
            case IdsGenerated(ids):
                self._pending += ids
                self._ids += ids
                return []
            case Finished():
                self._finished = event
                return self._end(event)
            case _:
                return []

    def completion(self) -> Chunk:
        """The whole answer. Call it after feeding `Finished`."""
        if self._finished is None:
            raise RuntimeError("completion() before the answer was finished")
        choice: Chunk = {
            "index": 0,
            "text": "".join(self._text),
            "logprobs": None,
            "finish_reason": self._finished.reason,
        }
        if self._prompt_ids is not None:
            choice |= {"token_ids": self._ids, "prompt_token_ids": list(self._prompt_ids)}
        return {**self._head, "choices": [choice], "usage": usage_of(self._finished)}

    def _end(self, finished: Finished) -> list[Chunk]:
        last = self._chunk("", finished.reason)
        usage = usage_of(finished)
        if not self._usage_chunk:
            return [{**last, "usage": usage}]
        return [last, {**self._head, "choices": [], "usage": usage}]

    def _chunk(self, text: str, reason: str | None = None) -> Chunk:
        choice: Chunk = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
        if self._prompt_ids is not None:
            choice["token_ids"], self._pending = self._pending, []
            if not self._told_prompt:
                self._told_prompt = True
                choice["prompt_token_ids"] = list(self._prompt_ids)
        return {**self._head, "choices": [choice]}
