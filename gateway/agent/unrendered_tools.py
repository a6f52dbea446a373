"""A prompt that the engine can't render: which tools are to blame, and in which form it can show them.

Templates fail on legal schemas (`toolcalls.schema.simpler`), and one tool would take every request with it. Tries
renderings of fewer tools, then of simpler forms of those that fail; what no form helps is left out. The number of
renderings is bounded, and what is found is kept with the engine, so that no other request meets the refusal.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from gateway.context.history.template_messages import tool_definitions
from gateway.engine.rendering.template_forms import ToolFault
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.errors import RequestInvalid
from gateway.toolcalls.grammar.loosened import too_much
from gateway.toolcalls.schema.merge import NO_PARAMETERS, tidied, typed
from gateway.toolcalls.schema.spec import ToolSpec


def _described(tool: ToolSpec) -> ToolSpec:
    schema = json.dumps(tool.parameters, ensure_ascii=False, default=dict)
    words = f"{tool.description}\nParameters, as JSON Schema: {schema}".strip()
    return replace(tool, description=words, parameters=NO_PARAMETERS)


_FORMS: Final[tuple[tuple[Callable[[ToolSpec], ToolSpec], str], ...]] = (
    (lambda tool: replace(tool, parameters=tidied(tool.parameters)), "the model reads a tidied form of it"),
    (lambda tool: replace(tool, parameters=typed(tool.parameters)), "the model reads it with plain types alone"),
    (_described, "the model reads it as JSON in the tool's description"),
)
"""From the closest to what the tool says to the plainest, and what follows."""
_REFUSED: Final = "the engine can't render its definition"
_LEFT_OUT: Final = "the model is not offered the tool"


async def find_forms(tools: Sequence[ToolSpec], ready: ReadyEngine, server_of: Callable[[str], str | None]) -> bool:
    """Find the tools that the engine can't render, and note a form for each.

    `server_of`: returns the server of a tool, by its name. Returns whether any was found; if not, something else in the
    conversation was refused.
    """
    if not tools or ready.tool_format.preamble:
        return False
    first = await ready.template.refusal_of(tool_definitions(tools))
    if first is None or await ready.template.refusal_of(()) is not None:
        return False
    search = _Search(ready, first)
    left = await too_much(tools, search.takes, _pass)
    for formed, outcome in _FORMS:
        forms = [(tool, formed(tool)) for tool in left]
        refused = await search.refused([form for _, form in forms])
        for tool, form in forms:
            # Where the bound was reached, a tool that needs no other form may be among those that do.
            if form.name not in refused and form != tool:
                ready.forms.note(tool, form, search.fault(tool, server_of, outcome))
        left = [tool for tool in left if tool.name in refused]
    for tool in left:
        ready.forms.note(tool, None, search.fault(tool, server_of, _LEFT_OUT))
    return True


class _Search:
    """Trial renderings for one request."""

    def __init__(self, ready: ReadyEngine, first: str) -> None:
        """`first`: why all tools together were refused."""
        self._ready = ready
        self._first = first
        self._reasons: dict[str, str] = {}

    async def takes(self, tools: Sequence[ToolSpec]) -> bool:
        """Whether the engine renders these tools; if it is one, the reason against it is kept."""
        refusal = await self._ready.template.refusal_of(tool_definitions(tools))
        if refusal is not None and len(tools) == 1:
            self._reasons.setdefault(tools[0].name, refusal)
        return refusal is None

    async def refused(self, forms: Sequence[ToolSpec]) -> set[str]:
        """The names of the forms that the engine does not render."""
        if not forms or await self.takes(forms):
            return set()
        return {form.name for form in await too_much(forms, self.takes, _pass)}

    def fault(self, tool: ToolSpec, server_of: Callable[[str], str | None], outcome: str) -> ToolFault:
        """What is reported of a tool."""
        reason = self._reasons.get(tool.name, self._first)
        return ToolFault(server_of(tool.name), tool.name, f"{_REFUSED} ({reason}); {outcome}")


def check_left_out(names: Sequence[str] | None, tools: Sequence[ToolSpec], ready: ReadyEngine) -> None:
    """Raise `RequestInvalid` where a request names a tool that is left out. `tools`: all tools of the request."""
    for tool in tools:
        if tool.name in (names or ()) and (fault := ready.forms.left_out(tool)) is not None:
            raise RequestInvalid(f"tool_choice: {fault.message}", param="tool_choice")


def _pass(tool: ToolSpec) -> None:
    """Note nothing: a tool's form is noted once it is known."""
