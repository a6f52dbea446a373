"""Tools whose grammars an engine has refused: which they are, and how their calls are held from then on.

What engines refuse is known only of those that were tried (`gbnf`); another build may have other limits. One grammar
holds all tools of a request, so one schema can break it for all. Finds the schemas by bisection, and remembers them for
as long as the engine runs. It asks no engine itself.
"""

import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Final

from gateway.toolcalls.schema.spec import ToolSpec

_REMEMBERED: Final = 1024
"""Most schemas that are remembered; the least recently used is dropped first."""
_LOOKS: Final = 64
"""Most grammars that are tried for one request: each costs the engine a generation of one id."""

Takes = Callable[[Sequence[ToolSpec]], Awaitable[bool]]
"""Asks the engine whether it accepts a grammar for these tools."""


class LooseTools:
    """The tools whose schemas one running engine has refused."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        """Remember nothing yet; later at most `most` schemas."""
        self._most = most
        self._known: OrderedDict[bytes, None] = OrderedDict()
        self._refuses_lazy = False

    @property
    def refuses_lazy(self) -> bool:
        """Whether the engine refuses every grammar that waits for a token."""
        return self._refuses_lazy

    def __contains__(self, tool: ToolSpec) -> bool:
        """Whether the engine refuses the tool's schema, regardless of whose tool it is."""
        if not self._known:
            return False
        key = _key(tool)
        if key in self._known:
            self._known.move_to_end(key)
        return key in self._known

    def note(self, tool: ToolSpec) -> None:
        """Remember a tool that was refused on its own."""
        self._known[_key(tool)] = None
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def note_lazy(self) -> None:
        """Remember that the engine refuses every grammar that waits for a token."""
        self._refuses_lazy = True


def loosened(tool: ToolSpec) -> ToolSpec:
    """Return a tool of the same name that takes any object."""
    return replace(tool, parameters={"type": "object"})


async def too_much(tools: Sequence[ToolSpec], takes: Takes, note: Callable[[ToolSpec], None]) -> list[ToolSpec]:
    """Find the tools to hold loosely, where an engine has refused the grammar of all of them.

    Tools that it refuses individually are noted. If it refuses none individually, only all together are too much, which
    says nothing about any of them: then all are loosened. Once too many grammars have been tried, the parts that are
    not yet split are loosened whole.
    """
    found: list[ToolSpec] = []
    parts, looks = [tools], 0
    while parts:
        part = parts.pop()
        if len(part) == 1:
            note(part[0])
        if len(part) == 1 or looks == _LOOKS:
            found += part
            continue
        middle = len(part) // 2
        looks += 2
        parts += [half for half in (part[middle:], part[:middle]) if not await takes(half)]
    return found or list(tools)


def _key(tool: ToolSpec) -> bytes:
    """The digest of the schema alone: to a grammar the name is a text like any other."""
    return sha256(json.dumps(tool.parameters, default=dict).encode("utf-8", "replace")).digest()
