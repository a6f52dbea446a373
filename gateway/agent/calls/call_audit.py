"""The agent's tool calls in the audit log.

Turns a finished call, and the ids that were made of its result, into one line. A call whose result nobody will see
(the client left, the engine failed) has a line too. It runs nothing.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from gateway.agent.calls.request_tools import ToolOffers
from gateway.agent.events import ToolFinished
from gateway.observe.audit import Audit, AuditLine, IdsSource
from gateway.proxy.caller import Principal
from gateway.proxy.naming import ToolEntry
from gateway.toolcalls.stream.output_events import CallClosed


class Ledger:
    """Records calls in an audit log."""

    def __init__(self, offers: ToolOffers, audit: Audit) -> None:
        self._offers = offers
        self._audit = audit

    def told(self, principal: Principal, finished: ToolFinished, map_id: str, outcome: str) -> None:
        """Record a call whose result became ids. `outcome`: how it ended; `refused`: no server was asked."""
        entry = self._offers.entry(finished.name)
        both = finished.leaf_ids and finished.shim_ids
        source: IdsSource = (
            "mixed" if both else "leaf" if finished.leaf_ids else "shim" if finished.shim_ids else "none"
        )
        self._audit.record(
            AuditLine(
                principal=principal.name,
                endpoint="v1",
                method="tools/call",
                outcome=outcome,
                server=None if entry is None else entry.server,
                tool=_public_name(entry, finished.name),
                map=map_id,
                source=source,
                bytes_in=len(finished.arguments.encode("utf-8", "replace")),
                bytes_out=len(finished.text.encode("utf-8", "replace")),
                ids=finished.leaf_ids + finished.shim_ids,
                duration_ms=finished.seconds * 1000,
                request_id=finished.call_id,
                arguments=_read(finished.arguments),
            )
        )

    def lost(self, principal: Principal, call: CallClosed, seconds: float | None) -> None:
        """Record a call whose result is not used. `seconds`: None where it did not end by itself."""
        entry = self._offers.entry(call.name)
        self._audit.record(
            AuditLine(
                principal=principal.name,
                endpoint="v1",
                method="tools/call",
                outcome="cancelled",
                server=None if entry is None else entry.server,
                tool=_public_name(entry, call.name),
                bytes_in=len(call.arguments.encode("utf-8", "replace")),
                duration_ms=(seconds or 0.0) * 1000,
                request_id=call.id,
                arguments=_read(call.arguments),
            )
        )


def _public_name(entry: ToolEntry | None, name: str) -> str:
    return name if entry is None else entry.alias_of or name


def _read(arguments: str) -> Mapping[str, Any]:
    """The arguments that the model wrote: the object, or their text under `text` where they are no object."""
    try:
        value: object = json.loads(arguments)
    except (ValueError, RecursionError):
        value = arguments
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"text": arguments}
