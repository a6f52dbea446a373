"""What is written down about calls, opened for the life of one gateway: the audit log and the traces.

Turns the settings into both; either may be None, and then nothing is written.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.model import GatewayConfig
from gateway.config.show import secrets_of
from gateway.observe.access_metrics import AccessMetrics
from gateway.observe.audit import Audit
from gateway.observe.telemetry import open_tracing

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Records:
    """Where calls are written down."""

    audit: Audit | None = None
    tracing: "Tracing | None" = None


@asynccontextmanager
async def open_records(config: GatewayConfig, metrics: AccessMetrics) -> AsyncGenerator[Records]:
    """Open both; what was recorded is written before the context ends.

    Raises:
        ConfigError: the audit log can't be written, or OpenTelemetry is not installed.
    """
    path, arguments = config.audit.path, config.audit.arguments
    audit = None if path is None else Audit(path, metrics, arguments=arguments, secrets=secrets_of(config))
    async with open_tracing(config.telemetry) as tracing:
        with audit or nullcontext():
            yield Records(audit, tracing)
