"""Sets up tracing, if it is configured: where spans are sent, and that they are sent before the process ends.

Turns `[telemetry]` into a `Tracing`, or into None; then no part of OpenTelemetry is ever loaded. It makes no spans:
`tracing.py` does.
"""

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import anyio

from gateway.config.access import TelemetryConfig
from gateway.errors import ConfigError

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

_FLUSH_SECONDS: Final = 3.0
_TRACES_PATH: Final = "/v1/traces"
_TALKATIVE: Final = ("opentelemetry.baggage.propagation", "opentelemetry.trace.propagation")
"""They warn about every malformed header, and strangers may send any header."""


@asynccontextmanager
async def open_tracing(config: TelemetryConfig) -> AsyncGenerator["Tracing | None"]:
    """Send traces to the configured collector while the context lasts; yields None if there is no collector.

    Raises:
        ConfigError: a collector is configured, but the extra `otel` is not installed.
    """
    if config.otlp_endpoint is None:
        yield None
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from gateway.observe.tracing import Tracing
    except ImportError:
        raise ConfigError(
            "telemetry.otlp_endpoint is set, but OpenTelemetry is not installed: pip install 'codec-gateway[otel]'"
        ) from None
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.ERROR)
    service = {"service.name": config.service_name, "service.version": version("codec-gateway")}
    # This context shuts the provider down; its own hook at exit would wait for a collector that does not answer.
    provider = TracerProvider(resource=Resource.create(service), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=traces_url(config.otlp_endpoint))))
    try:
        yield Tracing(provider)
    finally:
        with anyio.move_on_after(_FLUSH_SECONDS, shield=True):
            await anyio.to_thread.run_sync(provider.shutdown, abandon_on_cancel=True)


def traces_url(endpoint: str) -> str:
    """The URL that spans are sent to: a collector's address without a path gets the standard path (OTLP/HTTP)."""
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _TRACES_PATH
