"""The audit log: who called what, one JSON line for each call.

Defines the lines that `line_log.py` writes here: what an endpoint reports about a call, with secrets masked. It knows
no endpoint and no server.
"""

from collections.abc import Iterable
from pathlib import Path

from gateway.observe.access_metrics import AccessMetrics
from gateway.observe.audit_line import AuditLine, LineRenderer
from gateway.observe.line_log import LineKind, LineLog


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
