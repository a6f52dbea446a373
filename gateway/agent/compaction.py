"""Compaction: the model sums up its conversation, and goes on behind the summary.

The instruction to do so stands behind what the engine holds, so only it and the summary are processed. What follows is
a new conversation with the same preamble; the earlier one stays remembered until its place is needed. Knows no API:
those show the summary (`Compacted`), and read it when it is sent back (`context/history/shortening.py`).
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

from gateway.agent.agent import Agent
from gateway.agent.events import AgentEvent, Compacted, Emit, Finished
from gateway.agent.generate.generation_options import FREE, ToolChoice
from gateway.agent.turn import AnswerOptions
from gateway.context.compose.conversation import Conversation
from gateway.context.history.shortening import (
    INSTRUCTION,
    after_summary,
    is_summary,
    last_words,
    summary_text,
    with_instruction,
    words_behind,
)
from gateway.context.history.template_messages import tool_definitions
from gateway.context.memory import ContextChange
from gateway.context.memory.defined_tools import names_found
from gateway.engine.interface import Message
from gateway.errors import ContextExceeded, EngineRefused
from gateway.toolcalls.stream.output_events import Content

_FULL: Final = 4
"""A context is full when all but one in so many of its tokens are taken, whatever the client's threshold."""
_SUMMARY: Final = 8
"""A summary has at most one in so many of the context's tokens; what is shorter is not summed up."""
_QUOTED: Final = 2_000
"""Most characters of each of the user's last messages that are quoted behind a summary of them; less in a small
context."""

Begin = Callable[[Sequence[Message], ToolChoice], Awaitable[Conversation]]
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
        begin: Begin,
        messages: Sequence[Message],
        choice: ToolChoice = FREE,
        asked: Compaction | None = None,
    ) -> None:
        self._agent = agent
        self._begin = begin
        self._messages = messages
        self._choice = choice
        self._asked = asked
        self._until: int | None = None
        """How many messages are summed up; None: none is."""

    async def open(self) -> None:
        """Begin the conversation. Raises `GatewayError`."""
        asked = self._asked
        if asked is not None and asked.threshold is None:
            await self._begin_summary(len(self._messages))
        elif asked is None or asked.threshold is None or _awaits_results(self._messages):
            self.conversation = await self._begin(self._messages, self._choice)
        else:
            await self._begin_as_due(asked.threshold)

    async def _begin_as_due(self, threshold: int) -> None:
        messages, place = self._messages, _place_of_question(self._messages)
        try:
            self.conversation = await self._begin(messages, self._choice)
        except ContextExceeded:
            # What is new may be what is too long: results go with their calls.
            until = place if place < len(messages) else _place_of_answer(messages)
            if _place_of_answer(messages[:until]) == until:
                raise
            await self._begin_summary(until)
            return
        if _place_of_answer(messages) == len(messages) or not self._is_full(threshold):
            return
        # If there is no room for the instruction, the answer may still fit.
        with suppress(ContextExceeded):
            await self._begin_summary(place)

    def _is_full(self, threshold: int) -> bool:
        conversation = self.conversation
        taken, context = len(conversation.ids), conversation.ready.facts.context
        if taken < min(threshold, context - context // _FULL):
            return False
        # Of what stays, a summary would save nothing.
        texts = [str(each["content"]) for each in self._messages if each["role"] == "system"]
        texts += [json.dumps(each, ensure_ascii=False) for each in tool_definitions(conversation.tools)]
        beginning = sum(len(conversation.ready.token_map.encode(text)) for text in texts)
        return taken - beginning > min(threshold, context) // _SUMMARY

    async def _begin_summary(self, until: int) -> None:
        words = "" if self._asked is None else self._asked.instructions.strip()
        messages = with_instruction(self._messages[:until], words or INSTRUCTION)
        conversation = self.conversation = await self._begin(messages, FREE)
        conversation.note_changes(ContextChange("summed_up", len(conversation.ids)))
        self._until = until

    async def answer(self, options: AnswerOptions, emit: Emit) -> Finished:
        """Answer, after a summary if one is due; every event goes to `emit`, `Finished` last.

        Raises `EngineUnavailable`, `EngineRefused`, and what `open` raises.
        """
        if self._until is not None:
            summary = await self._summary(self._until, options)
            await emit(summary)
            if summary.ends:
                finished = Finished("stop", 0, 0, 0)
                await emit(finished)
                return finished
            if summary.text:
                self._messages = after_summary(self._messages, summary.text, summary.found)
            self.conversation = await self._begin(self._messages, self._choice)
            if summary.text:
                replaced = ContextChange("compacted", summary.prompt_ids, summary.completion_ids)
                self.conversation.note_changes(replaced)
        return await self._agent.answer(self.conversation, options, emit)

    async def _summary(self, until: int, options: AnswerOptions) -> Compacted:
        conversation, texts = self.conversation, list[str]()
        context = conversation.ready.facts.context

        async def keep(event: AgentEvent) -> None:
            if isinstance(event, Content):
                texts.append(event.text)

        most = max(context // _SUMMARY, 1)
        # A call is no summary: it is read as a call, and not made.
        asked = AnswerOptions(max_tokens=most, sampling=options.sampling, max_calls=0)
        finished = await self._agent.answer(conversation, asked, keep)
        summary = _whole("".join(texts), finished, most)
        now = self._asked is not None and self._asked.threshold is None
        if not summary and now:
            raise EngineRefused("the model wrote no summary of the conversation: ask again", 502)
        behind = words_behind(self._messages[until:]) or last_words(self._messages, min(_QUOTED, context // _SUMMARY))
        text = summary_text(summary, behind, conversation.readable_results) if summary else ""
        if text:
            self._agent.recall.sum_up(conversation, text)
        return Compacted(
            text,
            _found(conversation, self._messages[until:]),
            tuple(str(each["content"]) for each in self._messages if each["role"] == "system"),
            finished.prompt_ids,
            finished.cached_ids,
            finished.completion_ids,
            ends=bool(text) and self._asked is not None and self._asked.ends,
        )


def _found(conversation: Conversation, behind: Sequence[Message]) -> tuple[str, ...]:
    """The tools that the model has found, and those that the messages behind the summarized part have found."""
    names = chain(conversation.defined.newest, *map(names_found, behind))
    return tuple(name for name in dict.fromkeys(names) if name in conversation.asked.deferred)


def _whole(text: str, finished: Finished, most: int) -> str:
    """The summary, up to its last sentence where its own limit cut it; "" where anything else ended it."""
    text = text.strip()
    if finished.reason == "stop":
        return text
    if finished.reason != "length" or finished.completion_ids < most:
        return ""
    end = max(text.rfind(mark) for mark in (". ", ".\n", "\n"))
    return text[: end + 1].strip() or text


def _place_of_question(messages: Sequence[Message]) -> int:
    """Position of what the user asks now, which is not summed up but answered; the end where results come last."""
    place = len(messages)
    while place and messages[place - 1]["role"] in ("user", "system") and not is_summary(messages[place - 1]):
        place -= 1
    return place if place and messages[place - 1]["role"] == "assistant" else len(messages)


def _place_of_answer(messages: Sequence[Message]) -> int:
    """Position of the model's last answer; the end where there is none."""
    return max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=len(messages))


def _awaits_results(messages: Sequence[Message]) -> bool:
    """Whether a call has no result yet: what answers it later has to find it."""
    answered = {str(message.get("tool_call_id")) for message in messages if message["role"] == "tool"}
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return any(str(call.get("id")) not in answered for call in calls)
