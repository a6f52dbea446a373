"""Mounts the console on the admin port, and loads it when it is first requested.

Turns an ASGI application into one that has `/console` as well. The template engine and the pages are loaded by the
first request that `policy.py` lets through; until then there is only the sign-in, which makes the URL that is logged at
startup.
"""

from typing import Final

import anyio
import anyio.to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.address import is_loopback
from gateway.config.console import VARIABLE
from gateway.config.model import GatewayConfig
from gateway.serve.auth.token import stored_token
from gateway.serve.console.policy import Policy
from gateway.serve.console.sign_in import SignIn
from gateway.serve.console.sources import Sources

ROOT: Final = "/console"
_STORED: Final = "console-token"
"""Name of the file in the state folder that holds the operator's token, where none is configured."""


def operator_token(config: GatewayConfig) -> str:
    """The secret with which an operator signs in: the configured one, else that in the state folder, made if missing.

    Raises:
        ConfigError: the file can't be read or made, or others can read it.
    """
    return config.console.token or stored_token(_STORED, VARIABLE)


def sign_in_url(admin: str, key: str) -> str:
    """The URL that signs in with a key. `admin`: the admin port's URL."""
    return f"{admin.rstrip('/')}{ROOT}/sign-in?key={key}"


class ConsoleMount:
    """The admin port's application, with the console in front of its other pages."""

    def __init__(self, rest: ASGIApp, sources: Sources) -> None:
        """`rest` answers every path outside `/console`."""
        self._rest = rest
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
        ours = scope["type"] == "http" and (scope["path"] == ROOT or scope["path"].startswith(f"{ROOT}/"))
        await (self._guarded if ours else self._rest)(scope, receive, send)

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._loading:
                # In a thread: it takes a tenth of a second, which would block the event loop.
                self._app = self._app or await anyio.to_thread.run_sync(self._make)
        await self._app(scope, receive, send)

    def _make(self) -> ASGIApp:
        from gateway.serve.console.pages import Console

        return Console(self._sources, self._sign_in).app()
