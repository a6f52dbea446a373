"""Several answers to one request (`n`), in OpenAI's shape: chunks with the answer's index, or one completion with all.

The answers are made one after another. Each has its own `ChatReply`; this combines them. Pure.
"""

from collections.abc import Sequence

from gateway.agent.events import AgentEvent, Finished
from gateway.serve.generation.form import Chunk
from gateway.serve.openai.chat_reply import ChatReply, usage_of
from gateway.serve.openai.form import OpenAiReply


class ChoicesReply(OpenAiReply):
    """The reply to one request for several answers. `prompt`: how many ids the prompt has, which are counted once."""

    def __init__(self, replies: Sequence[ChatReply], prompt: int, *, usage_chunk: bool) -> None:
        self._replies = replies
        self._prompt = prompt
        self._usage_chunk = usage_chunk
        self._at = 0
        """Number of the answer that is being made."""
        self._finished: list[Finished] = []

    def begin(self) -> list[Chunk]:
        """The first chunk of each answer."""
        return [chunk for number, reply in enumerate(self._replies) for chunk in _numbered(reply.begin(), number)]

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks for one event of the answer that is being made."""
        number = self._at
        chunks = _numbered(self._replies[number].feed(event), number)
        if not isinstance(event, Finished):
            return chunks
        self._finished.append(event)
        self._at += 1
        if self._at < len(self._replies):
            return chunks
        if not self._usage_chunk:
            return [*chunks[:-1], {**chunks[-1], "usage": self._usage()}]
        head = {key: value for key, value in chunks[-1].items() if key != "codec"}
        return [*chunks, {**head, "choices": [], "usage": self._usage()}]

    def completion(self) -> Chunk:
        """All answers. `codec` describes the first one; `codec.choices` has one entry for each of the others."""
        first, *others = (reply.completion() for reply in self._replies)
        choices = [{**one["choices"][0], "index": number} for number, one in enumerate((first, *others))]
        codec = {**first["codec"], "choices": [other["codec"] for other in others]}
        return {**first, "choices": choices, "usage": self._usage(), "codec": codec}

    def _usage(self) -> Chunk:
        again = self._prompt * (len(self._finished) - 1)
        return usage_of(
            Finished(
                reason="stop",
                prompt_ids=sum(one.prompt_ids for one in self._finished) - again,
                cached_ids=max(sum(one.cached_ids for one in self._finished) - again, 0),
                completion_ids=sum(one.completion_ids for one in self._finished),
                reasoning_ids=sum(one.reasoning_ids for one in self._finished),
            )
        )


def _numbered(chunks: Sequence[Chunk], number: int) -> list[Chunk]:
    """The chunks of one answer with its index, without its own usage: usage is reported for all answers together."""
    told = ({key: value for key, value in chunk.items() if key != "usage"} for chunk in chunks if chunk["choices"])
    return [{**chunk, "choices": [{**chunk["choices"][0], "index": number}]} for chunk in told]
