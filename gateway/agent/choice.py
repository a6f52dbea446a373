"""tool_choice: whether a request may have it, and the grammar that holds one generation to it.

A required or named call is held from the first id; where the format has reasoning, that may come first. A model that
decides for itself is held, where the configuration wants that, from the token with which a call begins; before it and
without it, it writes freely. Knows nothing of engines or streams.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.agent.conversation import Conversation
from gateway.errors import RequestInvalid
from gateway.toolcalls import CallTrigger, ToolSpec, call_grammar, call_triggers

ToolChoice = Literal["auto", "none", "required"] | tuple[Literal["named"], str]


_PROMPT_TAIL = 64
"""Ids of the prompt's end: enough to tell whether the template opened a reasoning block."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A grammar, and the tokens that arm it; without any, it holds from the first id."""

    grammar: str
    triggers: tuple[CallTrigger, ...] = ()


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
    if choice != "auto":
        named = choice[1] if isinstance(choice, tuple) else "required"
        tail = prompt_tail(conversation)
        return Hold(call_grammar(fmt, tools, choice=named, parallel=parallel is True, prompt_tail=tail))
    token_map = conversation.ready.token_map
    triggers = call_triggers(fmt, token_map) if always else ()
    if not triggers:
        return None
    several = parallel is not False
    return Hold(call_grammar(fmt, tools, choice="required", parallel=several, vocabulary=token_map), triggers)
