"""Every id that engines were given or gave, held against what a client was told.

Turns what passes between the gateway and its engines into findings: a prompt that is not what stood before it, an id
that was told twice, left out, or changed.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway.agent.events import IdsGenerated, IdsSpliced
from gateway.engine.interface import Generated, GenerateRequest, GenerationEvent
from gateway.engine.wire.llama_cpp_client import LlamaCpp


@dataclass
class Asked:
    """One request to an engine, and the ids that it gave."""

    url: str
    prompt: list[int]
    ids: list[int] = field(default_factory=list[int])


@dataclass
class Ledger:
    """The ids of one answer."""

    prompt: list[int]
    specials: frozenset[int]
    told: list[int] = field(default_factory=list[int])
    asked: list[Asked] = field(default_factory=list[Asked])

    def hear(self, event: Any) -> None:
        """What the client is told."""
        if isinstance(event, IdsGenerated):
            self.told += event.ids
        elif isinstance(event, IdsSpliced):
            self.told += [token_id for part in event.parts for token_id in part.ids]

    def faults(self, context: Sequence[int]) -> list[str]:
        """What is wrong, given the conversation's ids at its end."""
        found: list[str] = []
        whole = [*self.prompt, *self.told]
        if list(context) != whole:
            found.append(f"the context has {len(context)} ids, and {len(whole)} were told")
        for asked in self.asked:
            if asked.prompt != whole[: len(asked.prompt)]:
                found.append(f"{asked.url} was asked with {len(asked.prompt)} ids that are not those before")
            told = whole[len(asked.prompt) : len(asked.prompt) + len(asked.ids)]
            # The last may be the end of a turn, which is no part of it, or have been held back when it was lost.
            ids = asked.ids if asked.ids == told else asked.ids[:-1]
            last = asked.ids[-1] if len(ids) < len(asked.ids) else None
            if ids != told[: len(ids)] or (last is not None and last not in self.specials):
                found.append(f"{asked.url} gave {len(asked.ids)} ids, and others were told")
        return found


CURRENT: ContextVar[Ledger | None] = ContextVar("ledger", default=None)
"""That of the answer that is being made."""


@asynccontextmanager
async def watched_engines() -> AsyncGenerator[None]:
    """Have every generation noted in the ledger of its answer."""
    generate = LlamaCpp.generate

    @asynccontextmanager
    async def noting(self: LlamaCpp, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        ledger = CURRENT.get()
        asked = Asked(self.url, list(request.prompt))
        if ledger is not None:
            ledger.asked.append(asked)
        async with generate(self, request) as events:
            yield noted(events, asked)

    async def noted(events: AsyncIterator[GenerationEvent], asked: Asked) -> AsyncIterator[GenerationEvent]:
        async for event in events:
            if isinstance(event, Generated):
                asked.ids += event.ids
            yield event

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LlamaCpp, "generate", noting)
        yield
