"""Finds tools whose definitions the model has not read: for its searches, and for calls that it makes all the same.

Turns a search into the definitions of the tools that fit best, and a call of a tool that was not found yet into that
tool's definition and the request to call again; a call of a tool that does not exist is taken for a search. Which of
them count as read is noted when the result is appended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import anyio.to_thread

from gateway.context.compose.conversation import Conversation, SearchTool
from gateway.context.compose.prompt import definition_texts
from gateway.context.memory.defined_tools import defining
from gateway.proxy.costs import BYTES_A_TOKEN
from gateway.proxy.tool_search import FINDER, SEARCH, no_match, rank
from gateway.toolcalls.schema.spec import ToolSpec

USUAL: Final = 5
"""How many tools a search returns if it does not say."""
_MOST: Final = 20
_NEAREST: Final = 3
"""How many tools a call of a tool that does not exist is answered with."""
_WORDS: Final = 500
"""Characters of its arguments that count."""
_LONG: Final = 65_536
"""Characters of a text whose tokens are estimated."""

OURS: Final = SearchTool(ToolSpec(SEARCH, FINDER["description"], FINDER["inputSchema"]))
"""The search where a request brings none."""


@dataclass(frozen=True, slots=True)
class FoundTools:
    """What a search, or a call of a tool that was not found yet, is answered with."""

    text: str
    names: tuple[str, ...]
    """All tools that fit."""
    new: tuple[ToolSpec, ...]
    """Those of them whose definitions are in the text."""


class ToolFinder:
    """The tools of one conversation that are defined only where they are found."""

    def __init__(self, conversation: Conversation, most: int) -> None:
        """`most`: tokens that the definitions in one result may take."""
        self._conversation = conversation
        self._most = most
        self._shown: set[str] = set()
        """Names of the tools in results of this generation."""

    @property
    def name(self) -> str | None:
        """The name of the search; None: there is nothing to find."""
        search = self._conversation.asked.search
        return None if search is None else search.spec.name

    def begin(self) -> None:
        """Begin a generation: what its searches find is noted in the conversation once its results are appended."""
        self._shown.clear()

    def finds(self, name: str) -> bool:
        """Whether a call of this name only finds tools."""
        return name == self.name or self.holds(name)

    def holds(self, name: str) -> bool:
        """Whether a tool exists whose definition the model has not read."""
        return name in self._conversation.asked.deferred and not self._conversation.has(name)

    async def search(self, arguments: Mapping[str, Any]) -> FoundTools:
        """Return the tools that fit best."""
        asked = self._conversation.asked
        query, limit = "", arguments.get("limit")
        if asked.search is not None:
            query = str(arguments.get(asked.search.query) or "")
        most = min(limit, _MOST) if isinstance(limit, int) and limit > 0 else USUAL
        entries = [*asked.deferred.values()]
        found = (await anyio.to_thread.run_sync(rank, entries, query))[:most]
        if not found:
            return FoundTools(no_match(len(entries)), (), ())
        return await self._found([entry.spec for entry in found])

    def guesses(self, name: str) -> bool:
        """Whether a call of this name, which no tool has, is answered with the tools that it may mean."""
        return self.name is not None and self._conversation.asked.may_be_deferred(name)

    async def nearest(self, name: str, arguments: str) -> FoundTools:
        """Return the answer to a call of a tool that does not exist. `arguments`: often say in words what it is for."""
        entries = [*self._conversation.asked.deferred.values()]
        ranked = await anyio.to_thread.run_sync(rank, entries, f"{name} {arguments[:_WORDS]}")
        words = f"there is no tool {name!r}, so this call was not made."
        if not ranked:
            return FoundTools(f"error: {words} Find tools with {self.name!r}.", (), ())
        found = await self._found([entry.spec for entry in ranked[:_NEAREST]])
        text = f"{words} {found.text}\nCall the one that fits, as defined, or find others with {self.name!r}."
        return FoundTools(text, found.names, found.new)

    async def unread(self, name: str) -> FoundTools:
        """Return the answer to a call of a tool whose definition the model has not read."""
        found = await self._found([self._conversation.asked.deferred[name].spec])
        words = f"{name!r} was not loaded yet, so this call was not made. {found.text}\nCall it again as defined."
        return FoundTools(words, found.names, found.new)

    async def _found(self, tools: Sequence[ToolSpec]) -> FoundTools:
        conversation = self._conversation
        new, texts, known, left = list[ToolSpec](), list[str](), list[str](), self._most
        for tool in tools:
            if conversation.has(tool.name) or tool.name in self._shown:
                known.append(tool.name)
                continue
            # Before its text is made: another search may run at the same time.
            self._shown.add(tool.name)
            (text,) = await definition_texts([tool], conversation.ready)
            left -= self._size(text)
            if new and left < 0:
                self._shown.discard(tool.name)
                # Named only: a definition that was cut would be worse than none.
                known.append(tool.name)
                continue
            new.append(tool)
            texts.append(text)
        said = [defining(texts)] if new else []
        if known:
            said.append(f"Also fitting: {', '.join(known)}")
        return FoundTools("\n".join(said), tuple(tool.name for tool in tools), tuple(new))

    def _size(self, text: str) -> int:
        """Tokens of a text; of a very long one, an estimate, which needs no tokenizing."""
        if len(text) > _LONG:
            return len(text) // BYTES_A_TOKEN
        return len(self._conversation.ready.token_map.encode(text))
