"""A running engine, with everything that is known about it: what a request gets from a route to be answered with.

A value: nothing of it is opened or ended here. `readiness.py` makes one at each start.
"""

import re
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final, TypeVar

import anyio

from gateway.config import EngineConfig
from gateway.engine.interface import Engine, EngineFacts, Options
from gateway.engine.rendering.scaffold import Shapes
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.rendering.template_forms import ToolForms
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.prefill import Prefill
from gateway.errors import EngineUnavailable, RequestInvalid
from gateway.escape import cut_text
from gateway.toolcalls.formats.registry import ChosenFormat
from gateway.toolcalls.grammar.refused_grammars import LooseTools
from leaf_sdk.vocab import TokenMap

# Waiting for an engine that may turn out to be lost in the meantime: one that hangs reports nothing itself.
#
# Turns a wait for a running engine into one that ends when the engine's route closes. Used where another engine can
# take over; otherwise a caller waits until the engine's own time limit.

T = TypeVar("T")


class Life:
    """One start of an engine, until it is lost."""

    def __init__(self) -> None:
        self.over = False
        self._waiting: set[anyio.CancelScope] = set()

    def end(self) -> None:
        """Record that the engine is lost, and end all waits for it."""
        self.over = True
        for scope in self._waiting:
            scope.cancel()

    async def wait(self, answer: Awaitable[T]) -> T:
        """Wait for an answer of the engine. Raises `EngineUnavailable` when the engine is lost before that."""
        with anyio.CancelScope() as scope:
            self._waiting.add(scope)
            if self.over:
                scope.cancel()
            try:
                return await answer
            finally:
                self._waiting.discard(scope)
        raise EngineUnavailable("the engine was lost before it answered; try again")

    def each(self, events: AsyncIterator[T]) -> AsyncIterator[T]:
        """The same events, each waited for like `wait`. The consumer is not interrupted while it handles an event."""
        return _Each(self, events)


class _Each(AsyncIterator[T]):
    def __init__(self, life: Life, events: AsyncIterator[T]) -> None:
        self._life = life
        self._events = events

    async def __anext__(self) -> T:
        return await self._life.wait(anext(self._events))


_VARIANTS = 16
"""Sets of options for which a template, and what is known about it, is kept."""


@dataclass(frozen=True, slots=True)
class ReadyEngine:
    """A running engine whose tokenizer has been proven equal to the maps."""

    engine: Engine
    facts: EngineFacts
    token_map: TokenMap
    template: ChatTemplate
    slots: SlotTable
    tool_format: ChosenFormat
    """How this model's calls are read, and whether its template or we teach it to write them."""
    loose: LooseTools = field(default_factory=LooseTools)
    """Tools whose schemas it has refused in a grammar."""
    forms: ToolForms = field(default_factory=ToolForms)
    """Tools that it can't render as they are defined."""
    number: int = field(default_factory=count().__next__)
    """The number of this start, unique among all engines."""
    shapes: Shapes = field(default_factory=Shapes)
    """Which conversations its template only appends to."""
    variants: "OrderedDict[str, tuple[ChatTemplate, Shapes]]" = field(
        default_factory=OrderedDict[str, tuple[ChatTemplate, Shapes]]
    )
    """Its template with options, and the shapes of that, by the options."""
    prefill: Prefill | None = None
    """What processes ids ahead of time; None if the engine's slots are not ours, or it is not wanted."""
    name: str = "engine"
    """Its name among the engines of the gateway."""
    settings: EngineConfig = field(default_factory=EngineConfig)
    """Its settings."""
    life: Life = field(default_factory=Life)
    """The life of this start, which ends when the engine is lost."""

    def with_options(self, options: Options) -> "ReadyEngine":
        """Return the same engine with options for its template."""
        template = self.template.with_options(options)
        if not template.options:
            return self
        key = repr(sorted(template.options.items()))
        if key not in self.variants:
            self.variants[key] = (template, Shapes())
            if len(self.variants) > _VARIANTS:
                self.variants.popitem(last=False)
        self.variants.move_to_end(key)
        known, shapes = self.variants[key]
        return replace(self, template=known, shapes=shapes)


def larger_context(ready: ReadyEngine) -> str:
    """What to change so that longer prompts fit."""
    settings = ready.settings
    if settings.kind == "embedded":
        each = settings.context // settings.slots
        if ready.facts.context < each:
            return "the model was not trained on more; shorten it, or use a model with a larger context"
        shared = f", which is shared by engine.slots (now {settings.slots})" if settings.slots > 1 else ""
        return f"shorten it, or raise engine.context (now {settings.context}){shared}"
    return (
        "shorten it, or give the engine a larger context (`llama-server -c`, `vllm serve --max-model-len`, or "
        "engine.context where the gateway runs the engine)"
    )


# Options of its template that a client may set. They go into the template's own text, where control tokens are read, so
# each must be a number, a Boolean or one plain word that is not part of a control token.

_MOST_OPTIONS: Final = 16
_OPTION_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OPTION_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_PARTS: Final = re.compile(r"[A-Za-z0-9]+")
_SET_BY_GATEWAY: Final = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token", "preserve_reasoning")
)
_SHOWN: Final = 80


def checked_options(given: Mapping[str, object], token_map: TokenMap, param: str) -> Options:
    """Check the options of a request, and return them in order. Raises `RequestInvalid` for one that is not allowed."""
    if len(given) > _MOST_OPTIONS:
        raise RequestInvalid(f"{param}: expected at most {_MOST_OPTIONS} options, got {len(given)}", param=param)
    return {key: _checked(key, given[key], token_map, param) for key in sorted(given)}


def _checked(key: str, value: object, token_map: TokenMap, param: str) -> str | int | float | bool:
    if not _OPTION_NAME.fullmatch(key) or key in _SET_BY_GATEWAY:
        words = f"{param}: {cut_text(repr(key), _SHOWN)} can't be an option: it is not a name, or the gateway sets it"
        raise RequestInvalid(words, param=param)
    if isinstance(value, bool | int | float):
        return value
    if not isinstance(value, str) or not _OPTION_WORD.fullmatch(value):
        words = f"{param}.{key}: expected a number, true, false or one plain word, got {cut_text(repr(value), _SHOWN)}"
        raise RequestInvalid(words, param=param)
    if not _words_of_tokens(token_map).isdisjoint(_PARTS.findall(value)):
        words = f"{param}.{key}: {value!r} is part of a control token, which a template could build of it; use another"
        raise RequestInvalid(words, param=param)
    return value


def _words_of_tokens(token_map: TokenMap) -> frozenset[str]:
    return frozenset(word for text in token_map.special_texts for word in _PARTS.findall(text))
