"""A running engine, with everything that is known about it: what a request gets from a route to be answered with.

A value: nothing of it is opened or ended here. `readiness.py` makes one at each start.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from itertools import count

from gateway.config import EngineConfig
from gateway.engine.interface import Engine, EngineFacts, Options
from gateway.engine.rendering.shapes import Shapes
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.rendering.tool_forms import ToolForms
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.slots.prefill import Prefill
from gateway.engine.start.watched import Life
from gateway.toolcalls.formats.registry import ChosenFormat
from gateway.toolcalls.grammar.loosened import LooseTools
from leaf_sdk.vocab import TokenMap

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
