"""The audit log: who called what, one JSON line for each call."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from math import isfinite
from pathlib import Path
from typing import Any, Final, Literal, cast

from gateway.escape import MASK, cut_text, mask_text, mask_value, sounds_secret
from gateway.observe.client_metrics import AccessMetrics
from gateway.observe.line_log import LineKind, LineLog, ascii_json, stamp

# Any value of a line may come from a caller or from a server.

_NAME_CUT: Final = 200
_TEXT_CUT: Final = 1000
_WIDTH: Final = 100
_DEPTH: Final = 8
_LONGEST_INT: Final = 256
"""Bits of the longest integer that is written as a number."""
_NAMES_KEPT: Final = 4096

Endpoint = Literal["mcp-stdio", "mcp-http", "v1", "console"]
IdsSource = Literal["leaf", "shim", "mixed", "none"]
"""Who made the ids that are sent with a result."""


@dataclass(frozen=True, slots=True)
class AuditLine:
    """One call, as the endpoint that served it saw it."""

    principal: str
    endpoint: Endpoint
    method: str
    outcome: str
    """`ok`, or how it failed: `tool_error`, `timeout`, `unavailable`, `refused`, `cancelled`."""
    server: str | None = None
    tool: str | None = None
    """Its public name; for a method other than `tools/call`, what the method names: a prompt, a URI."""
    map: str | None = None
    source: IdsSource = "none"
    """Who made the ids that left with the result."""
    bytes_in: int = 0
    bytes_out: int = 0
    ids: int = 0
    duration_ms: float = 0.0
    request_id: str | int | None = None
    arguments: Mapping[str, Any] | None = None
    """Written only where the operator asked for them."""


class LineRenderer:
    """Makes the text of lines."""

    def __init__(self, *, arguments: bool, secrets: frozenset[str]) -> None:
        """`arguments`: whether they are written; `secrets`: values that must not appear in any line."""
        self._arguments = arguments
        self._secrets = secrets
        # Most calls are to a few tools, and masking a name costs more than the rest of the line.
        self._name = lru_cache(_NAMES_KEPT)(self._clean_name)

    def render(self, when: datetime, line: AuditLine) -> str:
        """Return the line, without its end."""
        fields: dict[str, Any] = {
            "time": stamp(when),
            "principal": cut_text(line.principal, _NAME_CUT),
            "face": line.endpoint,
            "method": cut_text(line.method, _NAME_CUT),
            "server": line.server,
            "tool": None if line.tool is None else self._name(line.tool),
            "map": line.map,
            "source": line.source,
            "bytes_in": line.bytes_in,
            "bytes_out": line.bytes_out,
            "ids": line.ids,
            "duration_ms": round(line.duration_ms, 3),
            "outcome": line.outcome,
            "request_id": _masked("", line.request_id, self._secrets, 0),
        }
        if self._arguments and line.arguments is not None:
            fields["arguments"] = _masked("", line.arguments, self._secrets, 0)
        return ascii_json(fields)

    def _clean_name(self, name: str) -> str:
        return mask_text(cut_text(name, _NAME_CUT), self._secrets)


def _masked(name: str, value: object, secrets: frozenset[str], depth: int) -> Any:
    """A JSON value without secrets, cut to a length that a person reads."""
    if value is None or isinstance(value, bool | int | float):
        return MASK if value is not None and sounds_secret(name) else _plain(value)
    if isinstance(value, str):
        return cut_text(mask_value(name, value, secrets), _TEXT_CUT)
    if sounds_secret(name):
        return MASK
    if depth >= _DEPTH:
        return "…"
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())[:_WIDTH]
        return {
            cut_text(mask_text(str(key), secrets), _NAME_CUT): _masked(str(key), item, secrets, depth + 1)
            for key, item in pairs
        }
    items = list(cast("Iterable[object]", value))[:_WIDTH] if isinstance(value, list | tuple) else [repr(value)]
    return [_masked(name, item, secrets, depth + 1) for item in items]


def _plain(value: bool | float | None) -> Any:
    """The number, or a text if not every JSON reader would accept it. Python refuses to write very long ones at all."""
    if isinstance(value, float) and not isfinite(value):
        return repr(value)
    if isinstance(value, int) and value.bit_length() > _LONGEST_INT:
        return f"integer of {value.bit_length()} bits"
    return value


class Audit(LineLog[AuditLine]):
    """One audit log."""

    def __init__(
        self, path: Path, metrics: AccessMetrics, *, arguments: bool = False, secrets: Iterable[str] = ()
    ) -> None:
        """`secrets`: values that must not appear in any line, wherever they come from."""
        kind = LineKind(
            words="the audit log",
            setting="audit.path",
            render=LineRenderer(arguments=arguments, secrets=frozenset(secrets)).render,
            weigh=_with_arguments if arguments else _alone,
            dropped=metrics.audit_dropped,
            too_fast="calls came in faster than they could be written",
        )
        super().__init__(path, kind)


def _with_arguments(line: AuditLine) -> int:
    return line.bytes_in if line.arguments is not None else 0


def _alone(_line: AuditLine) -> int:
    return 0
