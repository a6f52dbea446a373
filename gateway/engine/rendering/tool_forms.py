"""How tools must be defined to one running engine: those whose own definition it can't render, or hold calls to.

Remembers, by a tool's definition, the form in which the chat template gets it, or that it is left out, and what is
reported of it. It asks no engine itself: `gateway.agent.unrendered_tools` finds the forms.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from gateway.escape import cut_text
from gateway.observe.logs import get_logger
from gateway.toolcalls.grammar.exact import has_too_many_ways
from gateway.toolcalls.schema.kinds import dead_references
from gateway.toolcalls.schema.spec import ToolSpec

_REMEMBERED: Final = 1024
"""Most tools that are remembered; the least recently used is dropped first."""
_SHOWN: Final = 80
_LISTED: Final = 3

_Key = tuple[str, str, bytes]
"""A tool's name, its description, and the digest of its schema."""

log = get_logger("engine")


@dataclass(frozen=True, slots=True)
class ToolFault:
    """What is wrong with one tool, and what follows from it."""

    server: str | None
    """The server that offers it; None: it came with a request."""
    tool: str
    reason: str

    @property
    def message(self) -> str:
        """The whole sentence."""
        whose = "the request" if self.server is None else f"server {self.server!r}"
        return f"tool {self.tool!r} of {whose}: {self.reason}"


@dataclass(slots=True)
class _Schema:
    """What is known of one schema object. It is kept with it, so that its address is not reused."""

    schema: Mapping[str, Any]
    dead: list[str] | None = None
    """Its references that lead nowhere; None: nobody has looked yet."""
    digest: bytes = b""
    """Of its text; empty: not computed yet."""
    loose: bool | None = None
    """Whether no grammar should hold a tool to it; None: nobody has looked yet."""


class ToolForms:
    """The forms of the tools of one running engine."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        """Remember nothing yet; later at most `most` tools."""
        self._most = most
        self._forms: OrderedDict[_Key, tuple[ToolSpec | None, ToolFault]] = OrderedDict()
        self._schemas: OrderedDict[int, _Schema] = OrderedDict()
        """What is known of schema objects, by their addresses: requests share those of servers' tools."""
        self._reported: OrderedDict[ToolFault, None] = OrderedDict()

    def note(self, tool: ToolSpec, form: ToolSpec | None, fault: ToolFault) -> None:
        """Remember in which form a tool is rendered; None: it is left out."""
        self._forms[self._key(tool)] = form, fault
        if len(self._forms) > self._most:
            self._forms.popitem(last=False)
        self.report(fault)

    def report(self, fault: ToolFault) -> None:
        """Log a fault, unless it is known."""
        if fault in self._reported:
            return
        self._reported[fault] = None
        if len(self._reported) > self._most:
            self._reported.popitem(last=False)
        log.warning("a tool can't be used as it is defined", server=fault.server, tool=fault.tool, reason=fault.reason)

    @property
    def reported(self) -> list[ToolFault]:
        """Every fault that was reported."""
        return list(self._reported)

    def rendered(self, tools: Sequence[ToolSpec]) -> list[ToolSpec]:
        """The tools as the template gets them, without those that are left out."""
        forms = (tool if (known := self._known(tool)) is None else known[0] for tool in tools)
        return [form for form in forms if form is not None]

    def offered(self, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
        """The tools themselves, without those that are left out."""
        return tuple(tool for tool in tools if self.left_out(tool) is None)

    def left_out(self, tool: ToolSpec) -> ToolFault | None:
        """Why a tool is left out; None: it is not."""
        known = self._known(tool)
        return None if known is None or known[0] is not None else known[1]

    def faults(self, tools: Sequence[ToolSpec], server_of: Callable[[str], str | None]) -> list[ToolFault]:
        """What is wrong with some of these tools. `server_of`: returns the server of a tool, by its name."""
        found: list[ToolFault] = []
        for tool in tools:
            if (known := self._known(tool)) is not None:
                found.append(known[1])
            if dead := self._dead_references(tool.parameters):
                found.append(ToolFault(server_of(tool.name), tool.name, nowhere(dead)))
                self.report(found[-1])
        return found

    def has_too_many_ways(self, tool: ToolSpec) -> bool:
        """Whether no grammar should hold a tool to its schema, since an engine could not follow it."""
        known = self._schema(tool.parameters)
        if known.loose is None:
            known.loose = has_too_many_ways(tool.parameters)
        return known.loose

    def _dead_references(self, schema: Mapping[str, Any]) -> list[str]:
        known = self._schema(schema)
        if known.dead is None:
            known.dead = dead_references(schema)
        return known.dead

    def _schema(self, schema: Mapping[str, Any]) -> _Schema:
        known = self._schemas.get(id(schema))
        if known is None:
            known = self._schemas[id(schema)] = _Schema(schema)
            if len(self._schemas) > self._most:
                self._schemas.popitem(last=False)
        else:
            self._schemas.move_to_end(id(schema))
        return known

    def _known(self, tool: ToolSpec) -> tuple[ToolSpec | None, ToolFault] | None:
        if not self._forms:
            return None
        key = self._key(tool)
        if key in self._forms:
            self._forms.move_to_end(key)
        return self._forms.get(key)

    def _key(self, tool: ToolSpec) -> _Key:
        known = self._schema(tool.parameters)
        if not known.digest:
            text = json.dumps(tool.parameters, default=dict)
            known.digest = sha256(text.encode("utf-8", "replace")).digest()
        return tool.name, tool.description, known.digest


def nowhere(references: Sequence[str]) -> str:
    """Say that references of a tool's schema lead nowhere."""
    shown = ", ".join(repr(cut_text(each, _SHOWN)) for each in references[:_LISTED])
    more = f" and {len(references) - _LISTED} more" if len(references) > _LISTED else ""
    return f"nothing in its schema is what {shown}{more} refers to; any value is accepted there"
