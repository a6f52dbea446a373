"""Tools: what a tool says of itself, what that costs, how its last calls went, and a form to call it by hand.

Turns a tool's definition into a page and a form, and a submitted form into a call. All texts come from the server:
templates show them as text, and none of its names becomes the name of an input.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from starlette.responses import Response

from codec_console.hand_call import HandCall, HandCalls
from codec_console.missing import PageNotFound
from codec_console.render import lines
from codec_console.tool_form import WHOLE, arguments_of, fields_of
from codec_console.visit import Page, PageGroup, Visit
from gateway.config.show import secrets_of
from gateway.errors import RequestInvalid
from gateway.proxy.naming import ToolEntry
from gateway.serve.admin.extra_pages import GatewayParts

_CALLS: Final = 20
_HINTS: Final[Mapping[str, tuple[str, str]]] = {
    "readOnlyHint": ("says that it only reads", "says that it may change things"),
    "destructiveHint": ("says that it may delete or overwrite things", "says that it deletes and overwrites nothing"),
    "idempotentHint": (
        "says that repeating a call has no further effect",
        "says that repeating a call may have a further effect",
    ),
    "openWorldHint": ("says that it reaches outside systems", "says that it reaches no outside systems"),
}


class Tools(PageGroup):
    """The pages of tools."""

    def __init__(self, sources: GatewayParts, render: Callable[..., Response]) -> None:
        super().__init__(sources, render)
        self._calls = HandCalls(sources)

    def pages(self) -> Sequence[Page]:
        """The page and its path."""
        return (Page("/console/tool", self._show, ("GET", "POST")),)

    async def _show(self, visit: Visit) -> Response:
        entry = self._entry(visit.query("name"))
        made: HandCall | None = None
        problem = ""
        if visit.request.method == "POST":
            try:
                arguments = arguments_of(entry.definition.get("inputSchema"), visit.form)
                made = await self._calls.make(entry, arguments)
            except RequestInvalid as error:
                problem = error.message
        return self._render("tool.html", visit, made=made, problem=problem, **self._values(entry, visit))

    def _values(self, entry: ToolEntry, visit: Visit) -> dict[str, Any]:
        definition, sources = entry.definition, self._sources
        secrets = secrets_of(sources.config)
        schema: object = definition.get("inputSchema")
        said: object = definition.get("description")
        return {
            "section": "/console/servers",
            "entry": entry,
            "description": lines(said if isinstance(said, str) else "", secrets),
            "hints": _hints(definition.get("annotations")),
            "schema": lines(json.dumps(schema, ensure_ascii=False, indent=2), secrets),
            "cost": sources.costs.of(entry),
            "counts": dict(sources.notices.counts(entry.name)),
            "calls": sources.proxy.last_calls.of(entry.server, entry.tool)[:_CALLS],
            "fields": fields_of(schema, visit.form),
            "whole_name": WHOLE,
            "whole": visit.form.get(WHOLE, ""),
        }

    def _entry(self, name: str) -> ToolEntry:
        found = next((each for each in self._sources.proxy.tools() if each.name == name), None)
        if found is None:
            raise PageNotFound(f"no tool is called {name!r:.80}, or its server is not running: see /console/servers")
        return found


def _hints(annotations: object) -> list[str]:
    """What a tool's annotations say of it, as phrases."""
    if not isinstance(annotations, dict):
        return []
    said = cast("dict[str, object]", annotations)
    given = [(words, said.get(name)) for name, words in _HINTS.items()]
    return [words[0] if value else words[1] for words, value in given if isinstance(value, bool)]
