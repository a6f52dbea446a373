"""How tools must be defined to one running engine: those whose own definition it can't render, or hold calls to.

Remembers, by a tool's definition, the form in which the chat template gets it, or that it is left out, and what is
reported of it. It asks no engine itself: `gateway.agent.unrendered_tools` finds the forms.
"""

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from gateway.observe.logs import get_logger
from gateway.toolcalls import ToolSpec

_REMEMBERED: Final = 1024
"""Most tools that are remembered; the least recently used is dropped first."""

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


class ToolForms:
    """The forms of the tools of one running engine."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        """Remember nothing yet; later at most `most` tools."""
        self._most = most
        self._forms: OrderedDict[bytes, tuple[ToolSpec | None, ToolFault]] = OrderedDict()
        self._reported: OrderedDict[ToolFault, None] = OrderedDict()

    def note(self, tool: ToolSpec, form: ToolSpec | None, fault: ToolFault) -> None:
        """Remember in which form a tool is rendered; None: it is left out."""
        self._forms[_key(tool)] = form, fault
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
        return tuple(tool for tool in tools if (known := self._known(tool)) is None or known[0] is not None)

    def faults(self, tools: Sequence[ToolSpec]) -> list[ToolFault]:
        """What is wrong with some of these tools."""
        return [known[1] for tool in tools if (known := self._known(tool)) is not None]

    def _known(self, tool: ToolSpec) -> tuple[ToolSpec | None, ToolFault] | None:
        if not self._forms:
            return None
        key = _key(tool)
        if key in self._forms:
            self._forms.move_to_end(key)
        return self._forms.get(key)


def _key(tool: ToolSpec) -> bytes:
    definition = json.dumps((tool.name, tool.description, tool.parameters), default=dict)
    return sha256(definition.encode("utf-8", "replace")).digest()
