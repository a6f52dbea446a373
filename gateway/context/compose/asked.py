"""What a request asks of its conversation. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.context.memory.defined_tools import ToolDigests
from gateway.proxy.caller import ANYBODY, Principal
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.formats.format import Format
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Diagnostic

_COMPOUND: Final = re.compile(r"[A-Za-z0-9]+(?:[_.-]+[A-Za-z0-9]+)+|[a-z]+(?:[A-Z][a-z0-9]+)+")
_LONGEST: Final = 128


@dataclass(frozen=True, slots=True)
class SearchTool:
    """The tool with which the model searches for tools that are not defined yet."""

    spec: ToolSpec
    query: str = "query"
    """The argument that says what it looks for, in words."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request asks of its conversation, as the model that answers it takes it."""

    format: Format
    tools: tuple[ToolSpec, ...] = ()
    """Those that the prompt is to define."""
    deferred: Mapping[str, ToolEntry] = field(default_factory=dict[str, ToolEntry])
    """By name, those that are defined only where a search finds them."""
    search: SearchTool | None = None
    """The tool that finds those, one of `tools`; None: the gateway does not search, but a tool of the client's may."""
    result_tools: tuple[ToolSpec, ...] = ()
    """Those that read results that were kept; they are defined behind the first of these. (): the client wants none."""
    client_tools: frozenset[str] = frozenset()
    """Names of tools that the client runs itself."""
    principal: Principal = ANYBODY
    """On whose behalf the gateway's tools are called."""
    server_of: Callable[[str], str | None] = lambda name: None
    """Returns the server of a tool of the gateway, by the tool's name."""
    may_call: bool = True
    """Whether calls may be made; if not, the prompt still holds the tools' definitions."""
    model: str | None = None
    """The name by which the client asks for the model; None: it names none."""
    home: bytes = b""
    """The key that decides which of several engines answers (`engine/pool/members.py`)."""
    digests: ToolDigests = field(default_factory=ToolDigests)
    """Of the tools' definitions."""
    diagnostics: tuple[Diagnostic, ...] = ()
    """What of the messages and tools the model reads in another form, or not at all."""

    def owner_of(self, tool: str) -> str | None:
        """Return the server of a tool; None for one that came with the request."""
        return None if tool in self.client_tools else self.server_of(tool)

    def may_be_deferred(self, name: str) -> bool:
        """Whether a name may mean a tool whose definition the model has not read: models guess names.

        It is made of several words, as names of tools are, or the last part of such a tool's name.
        """
        if not self.deferred or len(name) > _LONGEST:
            return False
        return bool(_COMPOUND.fullmatch(name)) or any(name == each.rpartition("__")[2] for each in self.deferred)
