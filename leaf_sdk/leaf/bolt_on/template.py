"""A fragment's text to its literal parts and slots, and those to what may be cached and what must wait for the slots.

Slots are `{name}`, without escaping; other braces are text, as published. Planning turns a template into cores (text
whose ids never change, whatever the slots hold) and regions (a slot with the text around it up to the next safe cut).
Joined, the ids of cores and regions are always the ids of the whole text: a core begins and ends at a safe cut or at an
end of the text. Knows no ids.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from leaf_sdk.errors import FragmentUnknown

from .cuts import Cuts

_SLOT = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place that gets filled with a text when the tool answers."""

    name: str


Part = str | Slot


@dataclass(frozen=True, slots=True)
class FragmentText:
    """One text of a tool, as its author writes it."""

    id: str
    text: str
    static: bool = False
    """Whether braces are ordinary text; a text without slots is static anyway."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """The literal texts and slots in order; no literal is empty, and no two are adjacent."""
        return (self.text,) if self.static else parse_template(self.text)

    @property
    def slots(self) -> tuple[str, ...]:
        """The slots' names, each once, in order."""
        return tuple(dict.fromkeys(part.name for part in self.parts if isinstance(part, Slot)))

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the whole text. Raises `FragmentUnknown`: a slot without a value."""
        return joined(self.parts, values)


@dataclass(frozen=True, slots=True)
class Core:
    """Text whose ids are the same whatever surrounds it."""

    text: str


@dataclass(frozen=True, slots=True)
class Region:
    """Slots and the text around them, encoded together when the slots are filled."""

    parts: tuple[Part, ...]


def parse_template(text: str) -> tuple[Part, ...]:
    """Split a template at its slots."""
    parts: list[Part] = []
    at = 0
    for found in _SLOT.finditer(text):
        parts += [text[at : found.start()], Slot(found[1])]
        at = found.end()
    return tuple(part for part in [*parts, text[at:]] if part != "")


def joined(parts: Sequence[Part], values: Mapping[str, str]) -> str:
    """Return the text of parts with the slots filled. Raises `FragmentUnknown`: a slot without a value."""
    try:
        return "".join([values[part.name] if isinstance(part, Slot) else part for part in parts])
    except KeyError as error:
        raise FragmentUnknown(f"missing slot {error.args[0]!r}; give every slot of the fragment a text") from None


def plan(parts: Sequence[Part], cuts: Cuts) -> tuple[Core | Region, ...]:
    """Divide a template: a literal's text between its outermost safe cuts is a core, the rest joins its slots."""
    pieces: list[Core | Region] = []
    region: list[Part] = []
    for place, part in enumerate(parts):
        if isinstance(part, Slot):
            region.append(part)
            continue
        # The ends of the whole text are safe; so is a cut that the map's own pre-tokenizer is sure to make.
        cut_places = cuts.places(part)
        ends = ([0] if place == 0 else []) + cut_places + ([len(part)] if place == len(parts) - 1 else [])
        if not ends:
            region.append(part)
            continue
        start, stop = ends[0], ends[-1]
        pieces += _closed([*region, part[:start]])
        pieces += [Core(part[start:stop])] if start < stop else []
        region = [part[stop:]]
    return (*pieces, *_closed(region))


def _closed(parts: list[Part]) -> list[Core | Region]:
    held = tuple(part for part in parts if part != "")
    return [Region(held)] if held else []
