"""The gateway's own token, and the host names under which it may be called.

Keeps the operator's token, and turns an ASGI application into one that answers only requests addressed to one of the
gateway's own names (`HostGuard`, against DNS rebinding: a page on a foreign name that resolves to 127.0.0.1). It knows
no routes and no other credentials (`bearer.py`). `app/process.py` wraps the endpoints and the admin port in it.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Awaitable, Collection, Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.address import host_name, is_loopback
from gateway.config.gateway_config import GatewayConfig, ServeConfig
from gateway.config.state import state_folder
from gateway.errors import ConfigError
from gateway.escape import escape_text
from gateway.serve.http.error_answers import Refusal, error_response
from gateway.serve.http.request_parts import headers_of

TOKEN_BYTES: Final = 32
SHORTEST_TOKEN: Final = 8
_SHOWN = 100
_KNOWN: Final = 256
_JUDGED: Final = ("host", "origin")


def token_path(name: str = "token") -> Path:
    """The path of a generated token: a file of this name in the user's state folder for codec-gateway."""
    return state_folder() / name


def ensure_token(config: GatewayConfig) -> str | None:
    """The token that clients must send; None if none is needed: on loopback, with none configured.

    Beyond loopback, with none configured, the one in the state folder is used; it is made at the first start.

    Raises:
        ConfigError: the state folder can't be written, or others can read the token in it.
    """
    if config.serve.token is not None:
        return config.serve.token
    return None if is_loopback(config.serve.host) else stored_token()


def stored_token(name: str = "token", variable: str = "CODEC_GATEWAY_TOKEN") -> str:
    """The token of this name in the state folder, made now if there is none yet.

    `variable`: the environment variable that sets one instead, for the error message.

    Raises:
        ConfigError: see `ensure_token`.
    """
    path = token_path(name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileExistsError):
            _create(path, secrets.token_urlsafe(TOKEN_BYTES))
        mode = stat.S_IMODE(path.stat().st_mode)
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path}: the token can't be stored there ({error}): set {variable}, or XDG_STATE_HOME"
        ) from None
    if mode & 0o077:
        raise ConfigError(
            f"{path}: others can read this token (mode {mode:04o}): remove the file, and a new one is made"
        )
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"{path}: holds no token of {SHORTEST_TOKEN} characters or more: remove the file, and a new one is made"
        )
    return token


def _create(path: Path, token: str) -> None:
    """Write a new file that no other user can ever open, and that no second process can write at the same time."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        file.write(token + "\n")
    try:
        # Linking fails if the name exists already, and never exposes a half-written token.
        os.link(draft, path)
    finally:
        draft.unlink()


def own_hosts(serve: ServeConfig) -> tuple[str, ...]:
    """The names, besides the loopback ones, under which this gateway is reached: the configured ones and its address.

    The unspecified address (`0.0.0.0`, `::`) is not a name.
    """
    host = serve.host.strip("[]")
    try:
        every = not host or ip_address(host).is_unspecified
    except ValueError:
        every = False
    return serve.allowed_hosts if every else (*serve.allowed_hosts, host)


def guard_admin(app: ASGIApp, serve: ServeConfig) -> ASGIApp:
    """The admin port's application, closed to pages on foreign names if it listens on loopback.

    Beyond loopback, Prometheus uses whatever address its targets have, and the network's own rules guard the port.
    """
    return HostGuard(app, own_hosts(serve)) if is_loopback(serve.admin_host) else app


class HostGuard:
    """Refuses a foreign `Host` (421), a foreign `Origin` (403), and more than one of either header (400).

    The MCP transport asks servers to check `Origin` (Streamable HTTP, "Security Warning"). A client that is not a
    browser sends none and passes.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str] = (), origins: Iterable[str] = ()) -> None:
        """`allowed_hosts`: names besides the loopback ones, `name` (any port) or `name:port`. `origins`: web pages that
        may call besides those of these hosts."""
        self._app = app
        self._origins = frozenset(origins)
        self._allowed = frozenset(host.lower() for host in allowed_hosts)
        self._known: set[tuple[str, str | None]] = set()
        """Pairs of Host and Origin that passed: parsing a host name takes 20 µs, and a client's are always the same."""

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection; `lifespan` passes through."""
        if scope["type"] == "lifespan":
            return self._app(scope, receive, send)
        headers = headers_of(scope)
        named = headers.values.get("host", ""), headers.values.get("origin")
        if headers.repeated or named not in self._known:
            refusal = self._judge(*named, headers.repeated)
            if refusal is not None:
                return refusal(scope, receive, send)
        return self._app(scope, receive, send)

    def _judge(self, host: str, origin: str | None, repeated: set[str]) -> Refusal | None:
        if not repeated.isdisjoint(_JUDGED):
            # A proxy in front of us may have checked the other one (RFC 9112, 3.2).
            return error_response(
                400, "the Host or Origin header was sent more than once: send each once", code="header_repeated"
            )
        if not names_us(host, self._allowed):
            return error_response(
                421,
                f"host {escape_text(host, _SHOWN)!r} is not a name of this gateway: add it to serve.allowed_hosts",
                code="host_not_allowed",
            )
        if origin is not None and origin not in self._origins and not self._is_our_page(origin):
            return error_response(
                403,
                f"pages from {escape_text(origin, _SHOWN)!r} may not call this: add it to serve.cors_origins",
                code="origin_not_allowed",
            )
        if len(self._known) < _KNOWN:
            self._known.add((host, origin))
        return None

    def _is_our_page(self, origin: str) -> bool:
        scheme, separator, netloc = origin.partition("://")
        return bool(separator) and scheme in {"http", "https"} and names_us(netloc, self._allowed)


def names_us(netloc: str, allowed: Collection[str]) -> bool:
    """Whether a `Host` is one of the gateway's names: a loopback one, or one of `allowed` (in lower case)."""
    name = host_name(netloc)
    return name is not None and (is_loopback(name) or name in allowed or netloc.lower() in allowed)
