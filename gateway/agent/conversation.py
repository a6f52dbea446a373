"""One conversation as ids, and nothing but ids.

`ids` is everything that the model was given or wrote, in order. It only ever grows at its end: that is what keeps the
engine's KV cache alive. Contents are spliced in between the template's own pieces (`engine/template.py`). It does not
generate and does not run tools. Above: `turn.py`.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.engine.route import ReadyEngine
from gateway.proxy.caller import ANYBODY, Principal
from gateway.toolcalls import Format, ToolSpec


@dataclass(slots=True)
class Spliced:
    """What was appended since the last generation, counted by where it came from."""

    leaf: int = 0
    shim: int = 0
    scaffold: int = 0
    seconds: float = 0.0
    """Time it took to make ids of contents and to splice them: part of the time to the next token."""


@dataclass(slots=True)
class Conversation:
    """The state of one conversation with one running engine."""

    ready: ReadyEngine
    format: Format
    tools: tuple[ToolSpec, ...]
    ids: list[int]
    client_tools: frozenset[str] = frozenset()
    """Names of tools that the client runs itself."""
    principal: Principal = ANYBODY
    """On whose behalf the gateway's tools are called."""
    held: int = 0
    """Ids of the last generation's prompt and output; 0 before the first."""
    guessed: bool = False
    """The last generation holds ids that were found by choice."""
    spliced: Spliced = field(default_factory=Spliced)

    @property
    def room(self) -> int:
        """Ids that still fit into the engine's context."""
        return self.ready.facts.context - len(self.ids)

    async def ask(self, question: str) -> None:
        """Append the next user turn to a conversation whose last turn is the model's."""
        await self.splice("user", [self.ready.token_map.encode(question)])

    async def splice(self, role: str, contents: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """Append turns of `role`, one per content, and open the model's next turn; give the ids around the contents."""
        started = time.perf_counter()
        pieces = await self.ready.template.scaffold([role] * len(contents))
        self.ids += pieces[0]
        for content, after in zip(contents, pieces[1:], strict=True):
            self.ids += content
            self.ids += after
        self.spliced.scaffold += sum(map(len, pieces))
        self.spliced.seconds += time.perf_counter() - started
        return pieces

    async def scaffold_size(self, role: str, count: int) -> int:
        """Ids that `splice` adds besides the contents."""
        return sum(map(len, await self.ready.template.scaffold([role] * count)))
