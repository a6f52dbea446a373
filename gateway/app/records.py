"""What a gateway records for as long as it lives: the audit log, the traces, and trajectories of answers.

Turns the settings into the objects that write them. Each may be None, and then nothing is written.
"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.model import GatewayConfig
from gateway.config.show import secrets_of
from gateway.engine.embedded.server import embedded_model
from gateway.engine.slots.swapper import model_digest
from gateway.observe.access_metrics import AccessMetrics
from gateway.observe.audit import Audit
from gateway.observe.telemetry import open_tracing
from gateway.observe.trajectories import TrajectoryLog

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing


@dataclass(frozen=True, slots=True)
class Records:
    """Where calls are recorded."""

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


@contextmanager
def open_trajectories(config: GatewayConfig, metrics: AccessMetrics) -> Generator[TrajectoryLog | None]:
    """Open the file of trajectories; what was recorded is written before the context ends.

    Raises:
        ConfigError: it can't be written.
    """

    def digest() -> str | None:
        # Which file an engine that is not embedded has loaded is not known here.
        engines = config.members.values()
        models = {embedded_model(each) for each in engines if each.kind == "embedded"}
        known = len(models) == 1 and all(each.kind == "embedded" for each in engines)
        return f"sha256:{model_digest(models.pop())}" if known else None

    if config.trajectories.path is None:
        yield None
        return
    secrets, logprobs = secrets_of(config), config.trajectories.logprobs
    with TrajectoryLog(
        config.trajectories.path, metrics, logprobs=logprobs, secrets=secrets, model_digest=digest
    ) as trajectories:
        yield trajectories
