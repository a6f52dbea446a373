"""Where the console begins: before the other pages of the admin port, and unloaded until somebody asks for it.

Turns an ASGI application into one that has `/console` as well. A template engine and the pages come with the first
request that `policy.py` lets through; before that there is a key for the start's URL, and nothing else.
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
"""Name of the operator's token in the state folder, where none is configured."""


def operator_token(config: GatewayConfig) -> str:
    """The secret that lets an operator in: the configured one, else that in the state folder, made if there is none.

    Raises:
        ConfigError: it can't be read or made, or others can read it.
    """
    return config.console.token or stored_token(_STORED, VARIABLE)


def sign_in_url(admin: str, key: str) -> str:
    """Where a key is used; `admin`: the admin port's address."""
    return f"{admin.rstrip('/')}{ROOT}/sign-in?key={key}"


class ConsoleMount:
    """The admin port's pages, and the console before them."""

    def __init__(self, rest: ASGIApp, sources: Sources) -> None:
        """`rest` answers what is not the console's."""
        self._rest = rest
        self._sources = sources
        self._sign_in = SignIn(lambda: operator_token(sources.config))
        self._guarded = Policy(self._load, sources.config.serve)
        self._loading = anyio.Lock()
        self._app: ASGIApp | None = None

    def start_url(self, admin: str) -> str | None:
        """A one-time URL for who started the gateway; None where the console can't be asked by that address."""
        reached = is_loopback(self._sources.config.serve.admin_host) and admin.startswith("http")
        return sign_in_url(admin, self._sign_in.key()) if reached else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One ASGI connection."""
        ours = scope["type"] == "http" and (scope["path"] == ROOT or scope["path"].startswith(f"{ROOT}/"))
        await (self._guarded if ours else self._rest)(scope, receive, send)

    async def _load(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None:
            async with self._loading:
                # In a thread: it takes a tenth of a second, and calls wait on this loop.
                self._app = self._app or await anyio.to_thread.run_sync(self._make)
        await self._app(scope, receive, send)

    def _make(self) -> ASGIApp:
        from gateway.serve.console.pages import Console

        return Console(self._sources, self._sign_in).app()
