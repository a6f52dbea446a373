"""Whether a bolt-on has ids for a map that this gateway accepts, and if not, why.

Turns a manifest and the accepted maps into a `Match` or a `Miss`. A hash counts if it is that of an accepted map's
bytes, or of the tokenizer.json that a map was built from: both are in use. Which maps are accepted is given from above,
since `proxy` and `engine` don't see each other.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from leaf_sdk.leaf.bolt_on import Manifest, ModelBinding
from leaf_sdk.vocab import TokenMap

_SHOWN: Final = 12
"""Hex digits of a hash that a person is shown."""


class KnownMaps(Protocol):
    """The accepted maps, by every hash that names one."""

    @property
    def by_hash(self) -> Mapping[str, TokenMap]:
        """64 lower-case hex digits to the map: of its own bytes, and of the tokenizer.json that it was built from."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """Ids may go both ways."""

    binding: ModelBinding
    token_map: TokenMap


@dataclass(frozen=True, slots=True)
class Miss:
    """They may not."""

    reason: str


@dataclass(frozen=True, slots=True)
class BoltOnStatus:
    """How one bolt-on is called, for people."""

    tool: str
    mode: str
    """`ids`, `text` or `refused`."""
    model: str | None
    """The model whose ids it speaks with us, by the manifest's name."""
    endpoint: str
    reason: str | None
    """Why it is not called with ids."""


class NoMaps:
    """Where no map is accepted."""

    by_hash: Mapping[str, TokenMap] = MappingProxyType({})


class Judged(Protocol):
    """The bolt-ons of one server, each called with ids or with text."""

    def maps_changed(self) -> None:
        """Other maps are accepted now."""
        ...

    def statuses(self) -> tuple[BoltOnStatus, ...]:
        """How each is called."""
        ...


class HeldMaps:
    """The accepted maps, and the bolt-ons that are up and go by them. One for a whole proxy."""

    def __init__(self, known: KnownMaps) -> None:
        self.known = known
        self._up: dict[object, tuple[str, Judged]] = {}
        self._said: dict[tuple[str, str], str] = {}

    def changed(self) -> None:
        """Other maps are accepted now."""
        for _, judged in list(self._up.values()):
            judged.maps_changed()

    @contextmanager
    def guiding(self, server: str, judged: Judged) -> Generator[None]:
        """While this lasts, `judged` hears of other maps."""
        key = object()
        self._up[key] = (server, judged)
        try:
            yield
        finally:
            del self._up[key]

    def is_new(self, server: str, tool: str, words: str) -> bool:
        """Whether these are other words than the last ones of a tool: a server comes and goes, and it is said once."""
        before, self._said[server, tool] = self._said.get((server, tool)), words
        return words != before

    def statuses(self, server: str) -> tuple[BoltOnStatus, ...]:
        """How each bolt-on of a server is called; none where it is no such server, or away."""
        # The last one: while a configuration is taken over there are two of a name.
        found = [judged for name, judged in self._up.values() if name == server]
        return found[-1].statuses() if found else ()


def match(manifest: Manifest, known: KnownMaps) -> Match | Miss:
    """Find the first model of the manifest whose tokenizer is accepted."""
    accepted = known.by_hash
    for binding in manifest.models:
        token_map = accepted.get(binding.tokenizer_hash)
        if token_map is not None:
            return Match(binding, token_map)
    has = ", ".join(f"{each.model_id or 'a model'} ({each.tokenizer_hash[:_SHOWN]}…)" for each in manifest.models[:5])
    if not accepted:
        return Miss(f"it has ids for {has}, and this gateway accepts no map")
    maps = sorted({each.map_id.removeprefix("sha256:")[:_SHOWN] for each in accepted.values()})
    return Miss(f"it has ids for {has}; accepted here is {', '.join(f'{each}…' for each in maps)}")
