"""Compaction: the model sums up its conversation, and goes on behind the summary.

The instruction to do so stands behind what the engine holds, so only it and the summary are processed. What follows is
a new conversation with the same preamble; the earlier one stays remembered until its place is needed. Knows no API:
those show the summary (`Compacted`), and read it when it is sent back (`context/history/summaries.py`).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.agent.agent import Agent
from gateway.agent.events import AgentEvent, Compacted, Emit, Finished
from gateway.agent.generate.choice import FREE, ToolChoice
from gateway.agent.turn import AnswerOptions
from gateway.context.compose.conversation import Conversation
from gateway.context.history.summaries import (
    INSTRUCTION,
    after_summary,
    is_summary,
    last_question,
    summary_text,
    with_instruction,
)
from gateway.engine.interface import Message
from gateway.errors import ContextExceeded, EngineRefused
from gateway.toolcalls.stream.output_events import Content

_NO_CALL: Final = ToolChoice("none")
_FULL: Final = 4
"""A context is full when all but one in so many of its tokens are taken, whatever the client's threshold."""
_SUMMARY: Final = 8
"""A summary has at most one in so many of the context's tokens; what is shorter is not summed up."""
_CHARACTERS: Final = 4
"""Characters of a message that make a token, roughly."""

Open = Callable[[Sequence[Message], ToolChoice], Awaitable[Conversation]]
"""Returns the conversation that messages begin, with all else as the client asked. Raises `GatewayError`."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a client asks for."""

    threshold: int | None = None
    """Tokens of a prompt from which on it is compacted; None: whatever it has."""
    instructions: str = ""
    """What the model is told; "": the gateway's own words."""
    ends: bool = False
    """Whether the answer ends with the summary."""


class CompactableAnswer:
    """The answer to some messages, which are summed up first if the client asks for it and it is due."""

    conversation: Conversation
    """The one that is answered, or summed up; there is one from `open` on."""

    def __init__(
        self,
        agent: Agent,
        open_: Open,
        messages: Sequence[Message],
        choice: ToolChoice = FREE,
        asked: Compaction | None = None,
    ) -> None:
        self._agent = agent
        self._open = open_
        self._messages = messages
        self._choice = choice
        self._asked = asked
        self._rest: Sequence[Message] = ()
        """Messages at the end that are not summed up."""
        self._is_due = False

    async def open(self) -> None:
        """Begin the conversation. Raises `GatewayError`."""
        asked = self._asked
        if asked is None:
            self.conversation = await self._open(self._messages, self._choice)
        elif asked.threshold is None:
            await self._open_to_sum_up(len(self._messages))
        else:
            await self._open_as_due(asked.threshold)

    async def _open_as_due(self, threshold: int) -> None:
        messages = self._messages
        answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
        # What the user says now is not summed up but answered; results are, behind the calls that they belong to.
        asks = messages[-1]["role"] == "user" and not is_summary(messages[-1])
        try:
            self.conversation = await self._open(messages, self._choice)
        except ContextExceeded:
            if not answers:
                raise
            # What is new may be what is too long.
            await self._open_to_sum_up(len(messages) - 1 if asks else answers[-1])
            return
        context = self.conversation.ready.facts.context
        is_full = len(self.conversation.ids) >= min(threshold, context - context // _FULL)
        if answers and is_full and _length(messages) > context // _SUMMARY * _CHARACTERS:
            await self._open_to_sum_up(len(messages) - asks)

    async def _open_to_sum_up(self, until: int) -> None:
        words = "" if self._asked is None else self._asked.instructions.strip()
        earlier, self._rest = self._messages[:until], self._messages[until:]
        if not any(message["role"] != "system" for message in earlier):
            earlier, self._rest = self._messages, ()
        self.conversation = await self._open(with_instruction(earlier, words or INSTRUCTION), _NO_CALL)
        self._is_due = True

    async def answer(self, options: AnswerOptions, emit: Emit) -> Finished:
        """Answer, after a summary if one is due; every event goes to `emit`, `Finished` last.

        Raises `EngineUnavailable`, `EngineRefused`, and what `open` raises.
        """
        if self._is_due:
            summary = await self._summarized(options)
            await emit(summary)
            if summary.ends:
                finished = Finished("stop", 0, 0, 0)
                await emit(finished)
                return finished
            if summary.text:
                self._messages = [*after_summary(self._messages, summary.text, summary.found), *self._unsaid()]
            self.conversation = await self._open(self._messages, self._choice)
        return await self._agent.answer(self.conversation, options, emit)

    def _unsaid(self) -> Sequence[Message]:
        """The messages behind the summary: none where it quotes the user's words."""
        return () if self._rest and self._rest[0]["role"] == "user" else self._rest

    async def _summarized(self, options: AnswerOptions) -> Compacted:
        conversation, ends = self.conversation, self._asked is not None and self._asked.ends
        most = max(conversation.ready.facts.context // _SUMMARY, 1)
        texts: list[str] = []

        async def keep(event: AgentEvent) -> None:
            if isinstance(event, Content):
                texts.append(event.text)

        asked = AnswerOptions(choice=_NO_CALL, max_tokens=most, sampling=options.sampling, show_calls=False)
        finished = await self._agent.answer(conversation, asked, keep)
        summary = "".join(texts).strip()
        if not summary and ends:
            raise EngineRefused("the model wrote no summary of the conversation: ask again", 502)
        rest = self._rest
        asks = bool(rest) and rest[0]["role"] == "user"
        question = str(rest[0]["content"]) if asks else last_question(self._messages)
        return Compacted(
            summary_text(summary, question) if summary else "",
            tuple(name for name in conversation.defined.newest if name in conversation.asked.deferred),
            finished.prompt_ids,
            finished.cached_ids,
            finished.completion_ids,
            ends,
        )


def _length(messages: Sequence[Message]) -> int:
    """Characters of the messages, without the system's."""
    said = (message for message in messages if message["role"] != "system")
    return sum(len(str(each.get("content") or "")) + len(str(each.get("tool_calls") or "")) for each in said)
