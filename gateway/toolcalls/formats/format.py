"""A format: one declaration of how a family of models writes its calls, and everything that is made from it.

The nodes give the parser and the grammar; the rest says how to recognise the family by its chat template and how to
show the shape to a model whose template does not support tools. A format holds no request and no stream, so one serves
all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from gateway.errors import RequestInvalid
from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.schemas import schema_rules
from gateway.toolcalls.nodes.combinators import Choice
from gateway.toolcalls.nodes.readers import Marker, Node, walk
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.spelling import Vocabulary, stand_ins


@dataclass(frozen=True)
class Format:
    """How one family of models writes its messages."""

    name: str
    body: Node
    """A whole message, from its first character."""
    calls: Node
    """What a grammar forces: only the calls."""
    shape: str
    """One call as a system prompt shows it."""
    answer: str = ""
    """What the family's models write before the text of an answer, if anything."""
    template_has: tuple[str, ...] = ()
    """Texts that all occur in the chat templates of this family; (): these texts identify no template."""
    template_or: tuple[str, ...] = ()
    """Texts any one of which also identifies the family: of templates that others wrote for its models."""
    template_lacks: tuple[str, ...] = ()
    """Texts that identify another family's templates."""

    @cached_property
    def markers(self) -> tuple[str, ...]:
        """The texts that may be special tokens, each once, in the order of the definition."""
        return tuple(dict.fromkeys(node.text for node in walk(self.body) if isinstance(node, Marker)))

    @cached_property
    def opening(self) -> str:
        """The marker with which calls begin; "" where they begin in several ways, or without a marker."""
        node: Node | None = self.calls
        while node is not None and not isinstance(node, Marker):
            # Where a call can begin in several ways, the grammar may write a different one from the first.
            children = () if isinstance(node, Choice) else node.children()
            node = children[0] if children else None
        return node.text if node is not None else ""


@dataclass(frozen=True, slots=True)
class CallTrigger:
    """A special token with which calls begin: a lazy grammar holds from where it occurs."""

    text: str
    token_id: int


def call_triggers(fmt: Format, vocabulary: Vocabulary) -> tuple[CallTrigger, ...]:
    """Return the tokens that trigger `call_grammar` while a model writes freely; none where that is not safe.

    It is safe where the format's grammar begins with a marker that is one special token: prose can't spell it, and the
    grammar accepts it as one token. A marker made of ordinary tokens is not a trigger: llama.cpp ends a generation with
    an error when the token that completes it holds more than the grammar allows (`>"` after `<tool_call`), as happens
    when prose quotes the marker.
    """
    found = stand_ins(vocabulary, (fmt.opening,)) if fmt.opening else {}
    return tuple(CallTrigger(text, token_id) for text, (token_id, _) in found.items())


def call_grammar(
    fmt: Format,
    tools: Sequence[ToolSpec],
    *,
    choice: Literal["required"] | str,
    parallel: bool = False,
    vocabulary: Vocabulary | None = None,
    prompt_tail: str | None = None,
    template: str | None = None,
) -> str:
    """Return the GBNF with which a model writes exactly one call, or with `parallel` one to sixteen, and then ends.

    Names, keys and values follow the tools' schemas as far as GBNF can express them (`grammar/schemas.py`). A value may
    be as long as its schema allows, so only the token limit stops a model that does not stop. `choice` is "required"
    for any of the tools, or one tool's name. With a `prompt_tail`, the end of the prompt's text, reasoning may come
    first where the format and the model's chat `template` have any, and must where the prompt has opened it. With a
    `vocabulary`, markers that are special tokens of it must be written as those (`<[id]>`, which llama.cpp has
    supported since December 2025); without one, any tokens that spell them will do.

    Raises:
        RequestInvalid: there is no tool to call, or none is named `choice`.
    """
    wanted = [tool for tool in tools if choice in ("required", tool.name)]
    if not wanted:
        offered = ", ".join(repr(tool.name) for tool in tools) or "none"
        raise RequestInvalid(
            f"tool_choice {choice!r} names no tool of this request (offered: {offered}); name one of them",
            param="tool_choice",
        )
    grammar = Grammar(wanted, parallel=parallel, schemas=schema_rules, tokens=marker_ids(fmt, vocabulary))
    reasoning = "" if prompt_tail is None else reasoning_rules(fmt, grammar, prompt_tail, template)
    return grammar.text(f"{reasoning} {fmt.calls.grammar(grammar)}".strip())


def marker_ids(fmt: Format, vocabulary: Vocabulary | None) -> dict[str, int]:
    """Return the id of each marker of a format that is a single special token of a vocabulary."""
    found = stand_ins(vocabulary, fmt.markers) if vocabulary else {}
    return {marker: token_id for marker, (token_id, _) in found.items()}


def reasoning_rules(fmt: Format, grammar: Grammar, tail: str, template: str | None = None) -> str:
    """Return the reasoning that may, or must, come before calls or an answer; "" where the prompt has closed it.

    With a chat template, reasoning may not come if its markers are not in the template: the model does not reason.
    """
    nodes = [node for node in walk(fmt.body) if template is None or _stands_in(node, template)]
    found = [reasoned for node in nodes if (reasoned := node.reasoning(grammar, tail))]
    opened = [reasoned.grammar for reasoned in found if reasoned.prompt == "opened"]
    if opened or any(reasoned.prompt == "closed" for reasoned in found):
        return "".join(opened[:1])
    return f"{grammar.either(reasoned.grammar for reasoned in found)}?" if found else ""


def _stands_in(node: Node, template: str) -> bool:
    """Whether a template has one of a node's first two markers, for reasoning the opening and the closing one."""
    return any(isinstance(marker, Marker) and marker.text in template for marker in node.children()[:2])
