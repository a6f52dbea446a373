"""The tools that a conversation's prompt defines, and where: definitions are only ever added to it.

Clients insert tools into their lists, remove some, change others; servers come late. Rendering such a list anew would
change what the engine has cached. So the first request of a conversation has its tools defined by the template, at the
beginning, and these definitions stay as they are; a tool that is new, or that was changed, is defined behind everything
that is cached: one that a search found behind that search's result, any other behind the first new message. A removed
tool stays defined, and calls of it are refused. Pure.
"""

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import chain, takewhile
from typing import Any, Final, Protocol

from gateway.context.memory.message_digests import RETOLD
from gateway.engine.interface import Message
from gateway.proxy.costs import BYTES_A_TOKEN
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.schema.spec import ToolSpec

BEGINNING: Final = -1
"""The place of definitions that the template writes, at the beginning of the prompt."""
ANSWER: Final = -2
"""The place of definitions within an answer: in the result of a search that the gateway ran."""
FOUND_TOOLS: Final = "found_tools"
"""Key of a message that has the names of tools whose definitions belong behind its content."""
_DIGEST: Final = 16
_KEPT: Final = 4 << 20
"""Most bytes of definitions whose digests are kept; the oldest go."""
_VALUE_BYTES: Final = 4
"""Bytes that a definition takes in memory for each byte of its JSON text, measured for a usual one."""
_STALE: Final = 8
"""A prompt is rendered anew if more than one in so many of the context's tokens define tools that are gone."""
_WORDS: Final = "You can call these tools now:"
_ENTRY_BYTES: Final = 200
"""Bytes that an entry takes besides."""


class ToolDigests:
    """Digests and sizes of tools' definitions: those that come again are written out once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, int], tuple[Mapping[str, Any], bytes, int]] = {}
        """By name, description and the schema's address; the schema is kept with it, so that this is not reused."""
        self._size = 0

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
            self._size += len(text)
            while self._size > _KEPT:
                self._size -= self._known.pop(next(iter(self._known)))[2]
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
        known, new = {each.name: each.digest for each in self.entries}, list[DefinedTool]()
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


class RequestTools(Protocol):
    """The tools of a request (`Asked`)."""

    @property
    def tools(self) -> Sequence[ToolSpec]:
        """Those that the prompt is to define."""
        ...

    @property
    def deferred(self) -> Mapping[str, ToolEntry]:
        """By name, those that are defined only where a search finds them."""
        ...

    @property
    def result_tools(self) -> Sequence[ToolSpec]:
        """Those that read results that were kept."""
        ...

    @property
    def client_tools(self) -> Container[str]:
        """Names of tools that the client runs itself."""
        ...

    @property
    def digests(self) -> ToolDigests:
        """Of the tools' definitions."""
        ...


def found_in(message: Message) -> Sequence[str]:
    """The names of the tools that a message found."""
    return message.get(FOUND_TOOLS) or ()


def completed(
    defined: DefinedTools, messages: Sequence[Message], known: int, asked: RequestTools, ran: Container[str] = ()
) -> DefinedTools:
    """Return the definitions of a prompt: those that a remembered answer's had, and those that are missing.

    Args:
        messages: the client's messages.
        known: how many of them, from the first, the remembered answer's prompt and the answer itself hold; 0: none.
        asked: has the tools that are to be defined, and those that are defined only once they are found.
        ran: ids of calls that the gateway ran in the remembered answer: their results are not shown as clients send
            them.
    """
    tools, deferred = asked.tools, asked.deferred
    more = asked.digests, asked.client_tools
    defined = defined.completed(chain(tools, (each.spec for each in deferred.values())), asked.digests)
    if not known:
        defined = defined.having(tools, BEGINNING, *more)
    seen: set[str] = set()
    for place in range(known, len(messages)) if deferred else ():
        # Each once, since clients repeat references and a definition may be large.
        names = [name for name in dict.fromkeys(names_found(messages[place])) if name in deferred and name not in seen]
        seen.update(names)
        defined = defined.having([deferred[name].spec for name in names], place, *more) if names else defined
    if not known:
        # The search that found these is not part of the messages any more.
        called = (name for message in messages if deferred for name in _called_in(message))
        earlier = [deferred[name].spec for name in dict.fromkeys(called) if name in deferred]
        return defined.having(earlier, BEGINNING, *more)
    place = _place(messages, known, ran)
    # A tool that was found and has changed since is defined anew, like any other.
    found_before = [deferred[name].spec for name in defined.newest if name in deferred] if deferred else ()
    return defined if place is None else defined.having([*tools, *found_before], place, *more)


def names_found(message: Message) -> list[str]:
    """Return the names of the tools that a message found, or one of those that stand for it."""
    return [name for each in (message, *(message.get(RETOLD) or ())) for name in found_in(each)]


def _called_in(message: Message) -> list[str]:
    return [str(call["function"]["name"]) for call in message.get("tool_calls") or ()]


def _place(messages: Sequence[Message], known: int, ran: Container[str]) -> int | None:
    """The new message behind which new tools are defined: the last of the results that come first, or else the first.

    None: all are turns of the model.
    """
    shown = [
        n
        for n in range(known, len(messages))
        if messages[n]["role"] != "assistant" and str(messages[n].get("tool_call_id")) not in ran
    ]
    results = list(takewhile(lambda n: messages[n]["role"] == "tool", shown))
    return next(iter(results[-1:] or shown), None)


def with_definitions(messages: Sequence[Message], defined: DefinedTools) -> Sequence[Message]:
    """Return the messages with the texts of the tools that are defined behind them."""
    places = defined.behind(len(messages))
    if not places:
        return messages
    return [_with_tools(each, places[n]) if n in places else each for n, each in enumerate(messages)]


def _with_tools(message: Message, tools: Sequence[DefinedTool]) -> Message:
    retold = message.get(RETOLD)
    if not retold:
        return _extended(message, tools)
    # Several messages stand for this one: each tool is defined behind the one that found it, or else behind the last.
    owners = {name: number for number, each in enumerate(retold) for name in found_in(each)}
    inside = list(retold)
    for number in dict.fromkeys(owners.get(tool.name, len(retold) - 1) for tool in tools):
        own = [tool for tool in tools if owners.get(tool.name, len(retold) - 1) == number]
        inside[number] = _extended(inside[number], own)
    return {**message, RETOLD: inside}


def _extended(message: Message, tools: Sequence[DefinedTool]) -> Message:
    content, text = str(message.get("content") or ""), defining(tool.text for tool in tools)
    # What the user asks comes last, where models look for it.
    parts = (text, content) if message["role"] == "user" else (content, text)
    return {**message, "content": "\n\n".join(filter(None, parts))}


def defining(texts: Iterable[str]) -> str:
    """Return the text that defines tools, from those of each."""
    return "\n".join((_WORDS, *texts))


def are_replaced(tools: DefinedTools, asked: RequestTools, context: int) -> bool:
    """Whether a prompt is rendered anew because of its tools: it had none, or holds too many that are gone."""
    if not tools.entries:
        return bool(asked.tools)
    if not asked.tools and not asked.deferred:
        # A client that sends no tools for once, as agents do that sum a conversation up, will send them again.
        return False
    most = context * BYTES_A_TOKEN / _STALE
    if sum(each.size for each in tools.entries) <= most:
        return False
    newest = tools.newest
    found = (asked.deferred[name].spec for name in newest if name in asked.deferred)
    # Only those that it defines: a digest costs as much as a message.
    readers = (tool for tool in asked.result_tools if tool.name in newest)
    stale = tools.stale(asked.digests.all_of((*readers, *asked.tools, *found)))
    return stale > most
