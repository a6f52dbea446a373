"""The console as the gateway mounts it on the admin port (entry point of `codec_gateway.admin_pages`).

The template engine and the pages are loaded by the first request that `policy.py` lets through; until then there is
only the sign-in, which makes the URL that is logged at startup.
"""

from typing import ClassVar, Final

import anyio
import anyio.to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from codec_console.policy import Policy
from codec_console.sign_in import SignIn
from gateway.config.access import VARIABLE
from gateway.config.address import is_loopback
from gateway.config.gateway_config import GatewayConfig
from gateway.serve.admin.extra_pages import GatewayParts
from gateway.serve.auth.gateway_token import stored_token

ROOT: Final = "/console"
_STORED: Final = "console-token"
"""Name of the file in the state folder that holds the operator's token, where none is configured."""


def operator_token(config: GatewayConfig) -> str:
    """The secret with which an operator signs in: the configured one, else that in the state folder, made if missing.
    Raises `ConfigError`: the file can't be read or made, or others can read it."""
    return config.console.token or stored_token(_STORED, VARIABLE)


def sign_in_url(admin: str, key: str) -> str:
    """The URL that signs in with a key. `admin`: the admin port's URL."""
    return f"{admin.rstrip('/')}{ROOT}/sign-in?key={key}"


class ConsoleMount:
    """Everything below `/console` on the admin port."""

    DESCRIPTION: ClassVar[str] = "conversations as the model sees them, servers and tools, for people"

    def __init__(self, sources: GatewayParts) -> None:
        """Make the sign-in. Nothing is loaded yet."""
        self._sources = sources
        self._sign_in = SignIn(lambda: operator_token(sources.config))
        self._guarded = Policy(self._load, sources.config.serve)
        self._loading = anyio.Lock()
        self._app: ASGIApp | None = None

    def start_url(self, admin: str) -> str | None:
        """A one-time sign-in URL for the operator at startup; None where the console can't be reached by that URL."""
        reached = is_loopback(self._sources.config.serve.admin_host) and admin.startswith("http")
        return sign_in_url(admin, self._sign_in.key()) if reached else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        await self._guarded(scope, receive, send)

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._loading:
                # In a thread: it takes a tenth of a second, which would block the event loop.
                self._app = self._app or await anyio.to_thread.run_sync(self._make)
        await self._app(scope, receive, send)

    def _make(self) -> ASGIApp:
        from codec_console.pages import Console

        return Console(self._sources, self._sign_in).app()
