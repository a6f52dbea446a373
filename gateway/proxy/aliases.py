"""Aliases: names that every model API accepts, for tools whose public names some refuse (`safe_names`).

OpenAI's and Anthropic's APIs, and hosts that pass names on to them, take 1 to 64 letters, digits, `_` and `-`, and
refuse a whole request for one other name. Turns a public name into its alias, which depends on the name alone unless
another tool has that alias as its name, and an alias back into the public name. Pure.
"""

import re
from collections.abc import Collection
from hashlib import sha256
from itertools import count
from typing import Final

SAFE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_DIGITS: Final = 8
_READABLE: Final = 64 - 1 - _DIGITS
"""Characters of an alias before its digest."""
_LEARNED: Final = 1000
"""Aliases of tools in no merged list that are kept: some servers list a tool only for some clients."""


class Aliases:
    """The aliases of one gateway's tools."""

    def __init__(self) -> None:
        """Start without names."""
        self._names: Collection[str] = ()
        self._known: dict[str, str] = {}
        self._learned: dict[str, str] = {}
        self._meant: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether a listed tool has an alias."""
        return bool(self._known)

    def assign(self, names: Collection[str]) -> None:
        """Give an alias to each of these names that needs one; they are the public names of all listed tools."""
        self._names = names
        self._known, self._meant = {}, {}
        # Sorted, so that the order of servers and of their lists decides nothing.
        for name in sorted(name for name in {*names, *self._learned} if SAFE.fullmatch(name) is None):
            alias = self._free_alias(name)
            self._meant[alias] = name
            (self._known if name in names else self._learned)[name] = alias

    def alias_of(self, name: str) -> str:
        """The alias of a public name; the name itself if it is safe."""
        if SAFE.fullmatch(name) is not None:
            return name
        alias = self._known.get(name) or self._learned.get(name)
        if alias is None:
            alias = self._learned[name] = self._free_alias(name)
            self._meant[alias] = name
            if len(self._learned) > _LEARNED:
                self._meant.pop(self._learned.pop(next(iter(self._learned))), None)
        return alias

    def name_of(self, alias: str) -> str:
        """The public name that an alias stands for; the alias itself if it stands for none."""
        return self._meant.get(alias, alias)

    def _free_alias(self, name: str) -> str:
        """The first alias of a name that is neither a tool's name nor another one's alias."""
        tries = (_alias(name, number) for number in count())
        return next(alias for alias in tries if alias not in self._names and alias not in self._meant)


def usual_alias(name: str) -> str:
    """The alias of a public name, whatever other tools are called; the name itself if it is safe."""
    return name if SAFE.fullmatch(name) is not None else _alias(name, 0)


def _alias(name: str, number: int) -> str:
    """What can be read of a name, and a digest of all of it."""
    digest = sha256(f"{number or ''}{name}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_UNSAFE.sub('_', name)[:_READABLE]}_{digest[:_DIGITS]}"
