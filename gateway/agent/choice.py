"""tool_choice: whether a request may have it, and the grammar that holds one generation to it.

A required or named call is held from the first id; where the format has reasoning, that may come first. A model that
decides for itself is held, where the configuration wants that, from the token with which a call begins; before it and
without it, it writes freely. Knows nothing of engines or streams.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from gateway.agent.conversation import Conversation
from gateway.errors import RequestInvalid
from gateway.toolcalls import CallTrigger, ToolSpec, call_grammar, call_triggers, loosened

ToolChoice = Literal["auto", "none", "required"] | tuple[Literal["named"], str]


_PROMPT_TAIL = 64
"""Ids of the prompt's end: enough to tell whether the template opened a reasoning block."""


@dataclass(frozen=True, slots=True)
class Hold:
    """The grammar of some tools, and the tokens that arm it; without any, it holds from the first id."""

    tools: tuple[ToolSpec, ...]
    """Those that may be called, as the grammar holds them."""
    write: Callable[[Sequence[ToolSpec]], str]
    """Gives the grammar of some of them."""
    triggers: tuple[CallTrigger, ...] = ()
    loose: frozenset[str] = frozenset()
    """Names of those whose arguments may be any object, since the engine takes no grammar of their schemas."""

    @property
    def grammar(self) -> str:
        """The grammar of all of them."""
        return self.write(self.tools)

    def loosening(self, too_much: Callable[[ToolSpec], bool]) -> "Hold":
        """Give a hold that is loose for those of its tools that are too much."""
        tools = tuple(loosened(tool) if too_much(tool) else tool for tool in self.tools)
        found = (tool.name for tool in self.tools if too_much(tool))
        return replace(self, tools=tools, loose=self.loose.union(found))


def check_choice(choice: ToolChoice, tools: Sequence[ToolSpec]) -> None:
    """Raise `RequestInvalid` for a choice that names no tool of the request."""
    names = [tool.name for tool in tools]
    if choice == "required" and not names:
        raise RequestInvalid("tool_choice is 'required', but there is no tool to call", param="tool_choice")
    if isinstance(choice, tuple) and choice[1] not in names:
        raise RequestInvalid(
            f"tool_choice names {choice[1]!r}; the tools are {', '.join(names) or 'none'}", param="tool_choice"
        )


def prompt_tail(conversation: Conversation) -> str:
    """Give the end of the prompt as text: it says whether the model's turn begins inside reasoning."""
    return conversation.ready.token_map.decode(conversation.ids[-_PROMPT_TAIL:])


def hold_for(conversation: Conversation, choice: ToolChoice, *, parallel: bool | None, always: bool) -> Hold | None:
    """Give what holds the next generation, None where it is free.

    `parallel` lets a required call have others beside it, and False forbids them to a model that decides for itself.
    `always` is the configuration's wish to hold those too: done where the format's calls begin with a special token.
    """
    fmt, tools = conversation.format, conversation.tools
    if choice == "none" or not tools:
        return None
    token_map, too_much = conversation.ready.token_map, conversation.ready.loose.__contains__
    if choice != "auto":
        tail = prompt_tail(conversation)
        wanted = tuple(tool for tool in tools if choice in ("required", ("named", tool.name)))
        forced = partial(call_grammar, fmt, choice="required", parallel=parallel is True, prompt_tail=tail)
        return Hold(wanted, forced).loosening(too_much)
    triggers = call_triggers(fmt, token_map) if always else ()
    if not triggers:
        return None
    free = partial(call_grammar, fmt, choice="required", parallel=parallel is not False, vocabulary=token_map)
    return Hold(tools, free, triggers).loosening(too_much)
