"""Where the tools of a request are defined in its prompt, and the texts of those that are defined behind messages.

The first request of a conversation has its tools defined by the template. From then on, what is new is only ever added:
a tool that a search found behind that search's result, any other behind the first new message. Renders nothing itself;
asks the template how it writes a definition.
"""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import Final

from gateway.context.compose.conversation import Asked
from gateway.context.history.template_messages import tool_definitions
from gateway.context.memory import BEGINNING, RETOLD, DefinedTools
from gateway.context.memory.defined_tools import DefinedTool, found_in
from gateway.engine.interface import Message
from gateway.engine.rendering.template_forms import as_json
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.proxy.costs import BYTES_A_TOKEN
from gateway.toolcalls.formats.registry import describe_tool
from gateway.toolcalls.schema.spec import ToolSpec

_ASKED: Final = 64
"""Most definitions of one request in the template's own form: each asks the engine, which has other work."""
_STALE: Final = 8
"""A prompt is rendered anew if more than one in so many of the context's tokens define tools that are gone."""
_WORDS: Final = "You can call these tools now:"


def completed(
    defined: DefinedTools, messages: Sequence[Message], known: int, asked: Asked, ran: Container[str] = ()
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
    found_before = [deferred[name].spec for name in defined.newest if name in deferred]
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


async def with_texts(defined: DefinedTools, ready: ReadyEngine) -> DefinedTools:
    """Return the definitions with the texts of those that stand behind messages."""
    wanted = [each for each in defined.entries if each.place >= 0 and not each.text and each.spec is not None]
    if not wanted:
        return defined
    texts = await definition_texts([each.spec for each in wanted if each.spec is not None], ready)
    found = {id(each): text for each, text in zip(wanted, texts, strict=True)}
    return DefinedTools(tuple(replace(each, text=found.get(id(each), each.text)) for each in defined.entries))


def with_definitions(messages: Sequence[Message], defined: DefinedTools) -> Sequence[Message]:
    """Return the messages with the texts of the tools that are defined behind them."""
    if not defined.later:
        return messages
    extended = list(messages)
    for place, tools in defined.behind(len(messages)).items():
        extended[place] = _with_tools(messages[place], tools)
    return extended


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


async def definition_texts(tools: Sequence[ToolSpec], ready: ReadyEngine) -> list[str]:
    """Return the text of each definition as the model's template or preamble writes it."""
    if ready.tool_format.preamble:
        return [describe_tool(tool) for tool in tools]
    # In the form that the template can show; a tool that it can't show is not offered.
    forms = [next(iter(ready.forms.rendered([tool])), tool) for tool in tools]
    definitions = tool_definitions(forms)
    return [
        await ready.template.definition(each) if number < _ASKED else as_json(each)
        for number, each in enumerate(definitions)
    ]


def are_replaced(tools: DefinedTools, asked: Asked, ready: ReadyEngine) -> bool:
    """Whether a prompt is rendered anew because of its tools: it had none, or holds too many that are gone."""
    if not tools.entries:
        return bool(asked.tools)
    if not asked.tools and not asked.deferred:
        # A client that sends no tools for once, as agents do that sum a conversation up, will send them again.
        return False
    most = ready.facts.context * BYTES_A_TOKEN / _STALE
    if sum(each.size for each in tools.entries) <= most:
        return False
    newest = tools.newest
    found = (asked.deferred[name].spec for name in newest if name in asked.deferred)
    # Only those that it defines: a digest costs as much as a message.
    readers = (tool for tool in asked.result_tools if tool.name in newest)
    stale = tools.stale(asked.digests.all_of((*readers, *asked.tools, *found)))
    return stale > most


def own_tools(asked: Asked) -> list[ToolSpec]:
    """The tools whose calls a client may send back with their defaults filled in."""
    return [*asked.tools, *(each.spec for name, each in asked.deferred.items() if name in asked.client_tools)]
