"""What one generation is asked to do: by the request, by the agent's rules, and by whoever receives its calls.

`tool_choice` says which tools may be called, and whether one must be; a grammar holds the generation to it. A required
or named call is held from the first id; where the format has reasoning, that may come first. A model that decides for
itself is held, where the configuration asks for it, from the token that begins a call; before that token, or without
it, it writes freely. Knows nothing of engines or streams.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

from gateway.context.compose.conversation import Conversation
from gateway.engine.interface import Sampling
from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.format import CallTrigger, call_grammar, call_triggers
from gateway.toolcalls.formats.structured_output import AnswerForm, answer_grammar
from gateway.toolcalls.grammar.refused_grammars import loosened
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed

_SHOWN: Final = 20
"""Most tool names that an error message lists."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools may be called, and whether the model decides. The prompt defines all tools in any case."""

    mode: Literal["auto", "none", "required"] = "auto"
    names: tuple[str, ...] | None = None
    """The tools that may be called; None: all."""
    lasts: bool = True
    """Whether `names` apply to the whole answer, or only to its first generation."""

    @classmethod
    def named(cls, name: str) -> "ToolChoice":
        """Return the choice that has one tool called first; after its result the model decides."""
        return cls("required", (name,), lasts=False)

    def allows(self, name: str) -> bool:
        """Whether a tool may be called."""
        return self.mode != "none" and (self.names is None or name in self.names)

    def renamed(self, names: Mapping[str, str]) -> "ToolChoice":
        """Return the same choice with other names for some tools."""
        return self if self.names is None else replace(self, names=tuple(names.get(each, each) for each in self.names))

    def also(self, names: Sequence[str]) -> "ToolChoice":
        """Return the choice that also allows these tools, unless a call of another one is required now."""
        if self.names is None or self.mode != "auto":
            return self
        return replace(self, names=tuple(dict.fromkeys((*self.names, *names))))

    def after_first(self) -> "ToolChoice":
        """Return the choice for the generations after the first: no call is required any more."""
        if self.mode == "none":
            return self
        return ToolChoice(names=self.names if self.lasts else None)


FREE: Final = ToolChoice()


@dataclass(frozen=True, slots=True)
class Hold:
    """A grammar for some tools, and the tokens that trigger it; without triggers it holds from the first id."""

    tools: tuple[ToolSpec, ...]
    """The tools that may be called, as the grammar holds them."""
    write: Callable[[Sequence[ToolSpec]], str]
    """Returns the grammar for some of them."""
    triggers: tuple[CallTrigger, ...] = ()
    loose: frozenset[str] = frozenset()
    """Names of tools whose arguments may be any object, since the engine refuses the grammar of their schemas."""
    formed: bool = False
    """Whether the grammar also allows, instead of a call, an answer in the form that the client asked for."""

    @property
    def grammar(self) -> str:
        """The grammar for all of them."""
        return self.write(self.tools)

    def loosening(self, too_much: Callable[[ToolSpec], bool]) -> "Hold":
        """Return a hold that is loose for those of its tools for which `too_much` is true."""
        found = frozenset(tool.name for tool in self.tools if too_much(tool))
        tools = tuple(loosened(tool) if tool.name in found else tool for tool in self.tools)
        return replace(self, tools=tools, loose=self.loose | found)


def check_choice(choice: ToolChoice, tools: Sequence[ToolSpec]) -> None:
    """Raise `RequestInvalid` for a choice that names no tool of the request."""
    names = [tool.name for tool in tools]
    if choice.mode == "required" and not names and choice.names is None:
        raise RequestInvalid("tool_choice is 'required', but there is no tool to call", param="tool_choice")
    if choice.names is None or choice.mode == "none":
        return
    if not choice.names:
        raise RequestInvalid("tool_choice allows no tool; name one, or say 'none'", param="tool_choice")
    missing = next((name for name in choice.names if name not in names), None)
    if missing is not None:
        raise RequestInvalid(f"tool_choice names {missing!r}, but the tools are {listed(names)}", param="tool_choice")


def listed(names: Sequence[str]) -> str:
    """List the names of some tools; only the first ones where there are many."""
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN]) or 'none'}{more}"


def hold_for(
    conversation: Conversation,
    choice: ToolChoice,
    *,
    parallel: bool | None,
    always: bool,
    form: AnswerForm | None = None,
) -> Hold | None:
    """Return what holds the next generation; None where it is free.

    Where a call must be made there is no answer yet, so `form`, the form that an answer must have, is ignored.
    `parallel`: True allows more calls beside a required one; False allows a model that decides for itself only one.
    `always`: the configuration wants the calls of such a model held too; done where the format's calls begin with a
    special token.
    """
    fmt = conversation.asked.format
    tools = tuple(tool for tool in conversation.tools if choice.allows(tool.name))
    if not tools and form is None:
        return None
    loose, forms = conversation.ready.loose, conversation.ready.forms

    def too_much(tool: ToolSpec) -> bool:
        return tool in loose or forms.has_too_many_ways(tool)

    if form is None and choice.mode != "required":
        hold = _hold_of_calls(conversation, tools, parallel=parallel) if always else None
        return None if hold is None else hold.loosening(too_much)
    ready = conversation.ready
    # Shows whether reasoning may come first: a model that does not reason would start to if a grammar allowed it.
    tail, template = conversation.prompt_tail, ready.facts.chat_template
    if choice.mode != "required" and form is not None:
        grammar, several = partial(answer_grammar, fmt, form), parallel is not False
    else:
        grammar, several, form = partial(call_grammar, fmt, choice="required"), parallel is True, None
    # With the vocabulary, markers are written as the template writes them: as single ids.
    made = partial(grammar, parallel=several, vocabulary=ready.token_map, prompt_tail=tail, template=template)
    return Hold(tools, made, formed=form is not None).loosening(too_much)


def _hold_of_calls(conversation: Conversation, tools: tuple[ToolSpec, ...], *, parallel: bool | None) -> Hold | None:
    """Return what holds calls that a model decides to make; None where the format or the engine does not support it."""
    fmt, ready = conversation.asked.format, conversation.ready
    waits = ready.facts.can.lazy_grammar and not ready.loose.refuses_lazy
    triggers = call_triggers(fmt, ready.token_map) if waits else ()
    several = parallel is not False
    free = partial(call_grammar, fmt, choice="required", parallel=several, vocabulary=ready.token_map)
    return Hold(tools, free, triggers) if triggers else None


@dataclass(frozen=True, slots=True)
class GenerationOptions:
    """What one generation is asked to do."""

    max_tokens: int
    sampling: Sampling
    hold: Hold | None = None
    stops: tuple[str, ...] = ()
    one_call: bool = False
    """Whether to end after the first call, whatever the model would write next."""
    ids: bool = False
    """Whether ids are emitted as they arrive, before the events that are read from them."""
    logprobs: int | None = None
    """How many of the likeliest ids are reported for each id of the content; None: no probabilities are reported."""
    first_index: int = 0
    """Number of calls that the response already shows: indexes count over the whole response."""
    tells: Callable[[str], bool] = lambda name: True
    """Whether the events of a tool's calls are emitted; other calls run silently."""
    shows: Callable[[str], bool] = lambda name: True
    """Whether a tool's calls are part of the answer that a client sends back."""
    asks: Callable[[CallClosed], bool] = lambda call: False
    """Whether a call is left to the client, to make or to approve."""
    on_call: Callable[[CallClosed, int], None] = lambda call, room: None
    """Takes each call as soon as it is closed, while the model may still be writing, and the ids of context that are
    left at that moment."""
    words: bool = False
    """Whether the model has to answer in words: it is kept from beginning a call, and whatever it writes is text."""
