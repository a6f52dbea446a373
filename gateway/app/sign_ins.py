"""The sign-ins of this machine, for a command that runs beside a gateway.

Turns the settings into a `GrantStore`, which uses the shared store where replicas have one. A command that renewed or
ended a sign-in without them would take it from them.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from gateway.config import GatewayConfig
from gateway.observe.metrics import Metrics
from gateway.proxy.transport.oauth.grants import GrantStore


@asynccontextmanager
async def open_sign_ins(config: GatewayConfig) -> AsyncGenerator[GrantStore]:
    """Open the shared store, if there is one, for as long as the context lasts. Raises `ConfigError`."""
    if config.shared.url is None:
        yield GrantStore()
        return
    from gateway.app.mcp_services import open_shared, replicas_of

    async with open_shared(config.shared, replicas_of(config.replicas), Metrics().shared) as shared:
        yield GrantStore(shared=shared)
