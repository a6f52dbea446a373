"""Whether a bolt-on has ids for a map that this gateway accepts, and if not, why.

Turns a manifest and the accepted maps into a `Match` or a `Miss`. A manifest may name a map by the hash of its bytes or
of the tokenizer.json that it was built from: both are in use. The accepted maps are injected from above, since `proxy`
and `engine` may not import each other.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from leaf_sdk.leaf.bolt_on import Manifest, ModelBinding
from leaf_sdk.vocab import TokenMap

_SHOWN: Final = 12
"""Hex digits of a hash that are shown to people."""


class KnownMaps(Protocol):
    """The accepted maps, by every hash that identifies one."""

    @property
    def by_hash(self) -> Mapping[str, TokenMap]:
        """Maps by hash (64 lower-case hex digits): that of their own bytes, and of the tokenizer.json behind them."""
        ...


@dataclass(frozen=True, slots=True)
class Match:
    """Ids may be sent both ways."""

    binding: ModelBinding
    token_map: TokenMap


@dataclass(frozen=True, slots=True)
class Miss:
    """Ids may not be sent."""

    reason: str


@dataclass(frozen=True, slots=True)
class BoltOnStatus:
    """How one bolt-on is called, to be shown to people."""

    tool: str
    mode: str
    """`ids`, `text` or `refused`."""
    model: str | None
    """The model whose ids are used, as the manifest names it; None: it names none, or no ids are used."""
    endpoint: str
    reason: str | None
    """Why it is not called with ids."""


class NoMaps:
    """A `KnownMaps` for a gateway that accepts no map."""

    by_hash: Mapping[str, TokenMap] = MappingProxyType({})


class MatchedTools(Protocol):
    """The bolt-ons of one server, each called with ids or with text, as the accepted maps decide."""

    def maps_changed(self) -> None:
        """Take note that the accepted maps have changed."""
        ...

    def statuses(self) -> tuple[BoltOnStatus, ...]:
        """How each bolt-on is called."""
        ...


class HeldMaps:
    """The accepted maps, and the running bolt-ons that depend on them. One instance for the whole proxy."""

    def __init__(self, known: KnownMaps) -> None:
        self.known = known
        self._up: dict[object, tuple[str, MatchedTools]] = {}
        self._said: dict[tuple[str, str], str] = {}

    def changed(self) -> None:
        """Take note that the accepted maps have changed."""
        for _, tools in list(self._up.values()):
            tools.maps_changed()

    @contextmanager
    def informing(self, server: str, tools: MatchedTools) -> Generator[None]:
        """Tell `tools` about changes of the accepted maps while the context lasts."""
        key = object()
        self._up[key] = (server, tools)
        try:
            yield
        finally:
            del self._up[key]

    def is_new(self, server: str, tool: str, words: str) -> bool:
        """Whether `words` differ from the last ones about this tool: a server that restarts does not log them again."""
        before, self._said[server, tool] = self._said.get((server, tool)), words
        return words != before

    def statuses(self, server: str) -> tuple[BoltOnStatus, ...]:
        """How each bolt-on of a server is called; empty if the server has no bolt-ons or is not up."""
        # The last one: during a reload there may be two servers of one name.
        found = [tools for name, tools in self._up.values() if name == server]
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
    return Miss(f"it has ids for {has}, and this gateway accepts only {', '.join(f'{each}…' for each in maps)}")
