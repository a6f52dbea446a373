"""The tools that a conversation's prompt defines, and where: definitions are only ever added to it.

Clients insert tools into their lists, remove some, change others; servers come late. Rendering such a list anew would
change what the engine has cached. So the definitions at the beginning of a conversation stay as they are; a tool that
is new, or that was changed, is defined behind everything that is cached. A removed tool stays defined, and calls of it
are refused. Pure.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

from gateway.engine.interface import Message
from gateway.toolcalls.schema.spec import ToolSpec

BEGINNING: Final = -1
"""The place of definitions that the template writes, at the beginning of the prompt."""
ANSWER: Final = -2
"""The place of definitions within an answer: in the result of a search that the gateway ran."""
FOUND_TOOLS: Final = "found_tools"
"""Key of a message that has the names of tools whose definitions belong behind its content."""
_DIGEST: Final = 16
_VALUE_BYTES: Final = 4
"""Bytes that a definition takes in memory for each byte of its JSON text, measured for a usual one."""
_ENTRY_BYTES: Final = 200
"""Bytes that an entry takes besides."""


class ToolDigests:
    """Digests and sizes of the definitions of one request's tools: each is written out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], tuple[Mapping[str, Any], bytes, int]] = {}
        """By name, description and the schema's address; the schema is kept with it, so that this is not reused."""

    def of(self, tool: ToolSpec) -> tuple[bytes, int]:
        """A digest of a tool's definition, and the bytes of its JSON text."""
        key = tool.name, tool.description, id(tool.parameters)
        known = self._known.get(key)
        if known is None:
            fields: list[Any] = [tool.name, tool.description, tool.parameters]
            # Some clients write the keys of the same definition in another order each time.
            text = json.dumps(fields, default=dict, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")
            digest = blake2b(text, digest_size=_DIGEST).digest()
            known = self._known[key] = tool.parameters, digest, len(text)
        return known[1:]

    def all_of(self, tools: Iterable[ToolSpec]) -> dict[str, bytes]:
        """The digests of tools' definitions, by the tools' names."""
        return {tool.name: self.of(tool)[0] for tool in tools}


@dataclass(frozen=True, slots=True)
class DefinedTool:
    """One definition in a prompt."""

    name: str
    digest: bytes
    place: int
    """The message, by its number among the client's, behind whose content it stands; or `BEGINNING`, or `ANSWER`."""
    spec: ToolSpec | None = None
    """None: another replica wrote it, and no request has sent it since."""
    size: int = 0
    """Bytes of its JSON text."""
    owned: bool = False
    """Whether its schema came with a request, and is kept for this conversation alone."""
    text: str = ""
    """How it is written behind a message; "" for another place, or where that is not known yet."""


@dataclass(frozen=True, slots=True)
class DefinedTools:
    """The definitions of one conversation, in the order in which they stand in its prompt."""

    entries: tuple[DefinedTool, ...] = ()

    @property
    def beginning(self) -> tuple[ToolSpec, ...]:
        """The tools that the template defines."""
        return tuple(each.spec for each in self.entries if each.place == BEGINNING and each.spec is not None)

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """All tools that are defined, each as it was defined last."""
        return tuple({each.name: each.spec for each in self.entries if each.spec is not None}.values())

    @property
    def digests(self) -> tuple[bytes, ...]:
        """What tells its tools at the beginning from others."""
        return tuple(each.digest for each in self.entries if each.place == BEGINNING)

    @property
    def later(self) -> bool:
        """Whether any tool was defined behind a message."""
        return any(each.place >= 0 for each in self.entries)

    @property
    def size(self) -> int:
        """Bytes that the definitions take, approximately."""
        return sum(_ENTRY_BYTES + each.owned * each.size * _VALUE_BYTES for each in self.entries)

    @property
    def newest(self) -> dict[str, bytes]:
        """The digest of each tool's last definition, by the tool's name."""
        return {each.name: each.digest for each in self.entries}

    def lacks(self, wanted: Mapping[str, bytes]) -> tuple[int, int]:
        """How many of these definitions are missing, and how many tools are defined besides. `wanted`: digests."""
        newest = self.newest
        return sum(newest.get(name) != digest for name, digest in wanted.items()), len(newest.keys() - wanted.keys())

    def stale(self, wanted: Mapping[str, bytes]) -> int:
        """Bytes of the definitions that are none of these any more."""
        return sum(each.size for each in self.entries if wanted.get(each.name) != each.digest)

    def having(
        self, tools: Iterable[ToolSpec], place: int, digests: ToolDigests, owned: Container[str] = ()
    ) -> "DefinedTools":
        """The same definitions, and those of these tools that are missing, at this place; the last one of a name.

        `owned`: names of the tools that came with the request.
        """
        known, new = self.newest, list[DefinedTool]()
        for name, tool in {tool.name: tool for tool in tools}.items():
            digest, size = digests.of(tool)
            if known.get(name) != digest:
                new.append(DefinedTool(name, digest, place, tool, size, name in owned))
        return DefinedTools((*self.entries, *new)) if new else self

    def completed(self, tools: Iterable[ToolSpec], digests: ToolDigests) -> "DefinedTools":
        """The same, with the definitions that another replica wrote, where these tools have them."""
        if all(each.spec is not None for each in self.entries):
            return self
        written = ((tool, *digests.of(tool)) for tool in tools)
        known = {(tool.name, digest): (tool, size) for tool, digest, size in written}

        def filled(each: DefinedTool) -> DefinedTool:
            spec, size = known.get((each.name, each.digest), (each.spec, each.size))
            return replace(each, spec=spec, size=size)

        return DefinedTools(tuple(map(filled, self.entries)))

    def behind(self, places: int) -> Mapping[int, list[DefinedTool]]:
        """The definitions behind messages, by the messages' numbers; only those below `places`."""
        found: dict[int, list[DefinedTool]] = {}
        for each in self.entries:
            if 0 <= each.place < places and each.text:
                found.setdefault(each.place, []).append(each)
        return found


NO_TOOLS: Final = DefinedTools()


def found_in(message: Message) -> Sequence[str]:
    """The names of the tools that a message found."""
    return message.get(FOUND_TOOLS) or ()
