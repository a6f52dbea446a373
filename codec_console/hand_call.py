"""A tool called by hand by a signed-in operator: it runs like any other call, and is written to the audit log.

Turns arguments into what a page shows of the result: where its ids came from, how long it took, and its blocks as text.
The result is not kept.
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, cast

from codec_console.render import PreparedText, lines
from gateway.agent.results.result_shortening import shorten
from gateway.config.show import secrets_of
from gateway.errors import GatewayError, RequestInvalid
from gateway.observe.audit import AuditLine, IdsSource
from gateway.protocol.eras import MAP_KEY, PROGRESS_KEY
from gateway.proxy.caller import Nobody
from gateway.proxy.naming import ToolEntry
from gateway.proxy.result_tokens import content_of, is_text
from gateway.serve.admin.extra_pages import GatewayParts
from gateway.serve.auth.identity import OPERATOR

_AT_ONCE: Final = 4
_BLOCKS: Final = 50


@dataclass(frozen=True, slots=True)
class HandCall:
    """A finished call."""

    ended: str
    seconds: float
    leaf_ids: int
    shim_ids: int
    blocks: tuple[tuple[str, PreparedText], ...]
    """The type and the text of each block."""
    more: int
    """How many blocks are not shown."""


class HandCalls:
    """Runs the calls of everybody who is signed in, a few at a time."""

    def __init__(self, sources: GatewayParts) -> None:
        self._sources = sources
        self._running = 0
        self._caller = Nobody(modern=False, principal=OPERATOR.principal)

    async def make(self, entry: ToolEntry, arguments: Mapping[str, Any]) -> HandCall:
        """Call a tool. Raises `RequestInvalid`: too many calls are running already."""
        if self._running >= _AT_ONCE:
            raise RequestInvalid(f"{_AT_ONCE} calls made by hand are already running: wait until one has finished")
        self._running += 1
        try:
            return await self._make(entry, arguments)
        finally:
            self._running -= 1

    async def _make(self, entry: ToolEntry, arguments: Mapping[str, Any]) -> HandCall:
        config, token_map = self._sources.config, self._sources.engines.maps.session
        meta: dict[str, Any] = {PROGRESS_KEY: 0}
        if token_map is not None:
            meta[MAP_KEY] = token_map.map_id
        params: dict[str, Any] = {"name": entry.name, "arguments": dict(arguments), "_meta": meta}
        began, ended = perf_counter(), "cancelled"
        result: Mapping[str, Any] = {}
        ids = (0, 0)
        try:
            # Whoever fills in the form and presses the button approves the call.
            outcome = await self._sources.proxy.call_tool(params, self._caller, approved=True)
            result, ended = outcome.result, outcome.ended
            ids = self._ids(entry, result)
        except GatewayError as error:
            result, ended = {"content": [{"type": "text", "text": error.message}]}, "refused"
        finally:
            took = perf_counter() - began
            self._note(entry, arguments, ended, result, took, ids)
        blocks = content_of(result)
        known = secrets_of(config)
        shown = tuple(_shown(block, known) for block in blocks[:_BLOCKS])
        if (structured := result.get("structuredContent")) is not None:
            shown = (*shown, ("structured content", _as_json(structured, known)))
        return HandCall(ended, took, *ids, shown, max(0, len(blocks) - _BLOCKS))

    def _ids(self, entry: ToolEntry, result: Mapping[str, Any]) -> tuple[int, int]:
        """How many ids of the result are the tool's own (leaf), and how many were made here (shim)."""
        token_map = self._sources.engines.maps.session
        if token_map is None:
            return 0, 0
        shown = shorten(result, self._sources.config.limits.result_tokens)
        # Every other piece is the line break between two blocks, which is neither.
        pieces = self._sources.tokens.for_engine(entry.name, shown, token_map).pieces[::2]
        own = sum(len(each.ids) for each in pieces if each.source == "leaf")
        return own, sum(len(each.ids) for each in pieces) - own

    def _note(
        self,
        entry: ToolEntry,
        arguments: Mapping[str, Any],
        ended: str,
        result: Mapping[str, Any],
        took: float,
        ids: tuple[int, int],
    ) -> None:
        if self._sources.audit is None:
            return
        token_map = self._sources.engines.maps.session
        source: IdsSource = "mixed" if all(ids) else "leaf" if ids[0] else "shim" if ids[1] else "none"
        self._sources.audit.record(
            AuditLine(
                principal=OPERATOR.principal.name,
                endpoint="console",
                method="tools/call",
                outcome=ended,
                server=entry.server,
                tool=entry.name,
                map=None if token_map is None else token_map.map_id,
                source=source,
                bytes_in=_size(arguments),
                bytes_out=_size(result) if result else 0,
                ids=sum(ids),
                duration_ms=took * 1000,
                request_id=secrets.token_hex(8),
                arguments=arguments,
            )
        )


def _size(value: object) -> int:
    return len(json.dumps(value).encode())


def _shown(block: Any, known: frozenset[str]) -> tuple[str, PreparedText]:
    if is_text(block):
        return "text", lines(block["text"], known)
    # Images and sounds are shown as JSON: their decoders are the browser's largest attack surface.
    fields = cast("dict[str, object]", block) if isinstance(block, dict) else {"type": None}
    kind = fields.get("type")
    return kind if isinstance(kind, str) else "?", _as_json(fields, known)


def _as_json(value: object, known: frozenset[str]) -> PreparedText:
    return lines(json.dumps(value, ensure_ascii=False, indent=2), known)
