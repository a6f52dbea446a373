"""What every request to the console must be, and what every answer of it carries.

Turns an ASGI application into one that browsers keep apart from all else: no frame, no script and no address of others,
nothing stored. Requests must name us by a name of ours (DNS rebinding), come from this machine or through TLS, and
change something only from a page of ours. It knows no session and no page.
"""

from collections.abc import Mapping
from typing import Final

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config.address import is_loopback
from gateway.config.model import ServeConfig
from gateway.observe.escape import escape_text
from gateway.serve.auth.token import host_name, names_us, own_hosts
from gateway.serve.http.client_address import TrustedProxies

SCHEME: Final = "console.scheme"
"""Key in the ASGI scope: how the browser reaches us, `http` (on this machine) or `https`."""
CLIENT: Final = "console.client"
"""Key in the ASGI scope: the browser's address."""
_CONTENT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[bytes, bytes]] = {
    b"content-security-policy": _CONTENT.encode(),
    b"x-content-type-options": b"nosniff",
    # Not `no-referrer`: with that a browser sends `Origin: null` with our own forms, and no Origin could be checked.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"x-frame-options": b"DENY",
    b"cache-control": b"no-store",
}
_FORWARDED: Final = frozenset({b"x-forwarded-for", b"x-forwarded-proto", b"x-forwarded-host", b"forwarded"})
_ONCE: Final = (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode")
_SHOWN: Final = 100
_NO_TLS: Final = (
    "The console shows what models and tools say, so beyond this machine it is served over TLS only. Ask it here, by "
    "127.0.0.1 (for one by ssh -L), or put a proxy with TLS before the admin port: name its address in "
    "serve.trusted_proxies and its host name in serve.allowed_hosts, and let it set X-Forwarded-For, and "
    "X-Forwarded-Proto to https."
)


class Policy:
    """Judges requests, and marks answers."""

    def __init__(self, app: ASGIApp, serve: ServeConfig) -> None:
        self._app = app
        self._proxies = TrustedProxies(serve.trusted_proxies)
        self._hosts = frozenset(host.lower() for host in own_hosts(serve))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One HTTP request."""

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message.get("headers", ()) if pair[0] not in HEADERS]
                message = {**message, "headers": [*kept, *HEADERS.items()]}
            await send(message)

        judged = self._judge(scope)
        if isinstance(judged, Response):
            await judged(scope, receive, send_marked)
        else:
            await self._app({**scope, SCHEME: judged[0], CLIENT: judged[1]}, receive, send_marked)

    def _judge(self, scope: Scope) -> tuple[str, str] | Response:
        """How the browser reaches us and from where, or why it is refused."""
        given = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if any(sum(name == each for name, _ in scope["headers"]) > 1 for each in _ONCE):
            return _refused(400, "more than one Host or Origin header came: send one")
        host = given.get(b"host", "")
        if not names_us(host, self._hosts):
            shown = escape_text(host, _SHOWN)
            return _refused(421, f"host {shown!r} is not a name of this gateway: add it to serve.allowed_hosts")
        peer = str(scope["client"][0]) if scope.get("client") else ""
        place = self._place(peer, host, scope)
        if place is None:
            return _refused(403, _NO_TLS)
        problem = _problem(scope["method"], f"{place[0]}://{host}", given)
        return place if problem is None else _refused(403, problem)

    def _place(self, peer: str, host: str, scope: Scope) -> tuple[str, str] | None:
        headers = scope["headers"]
        if not any(name in _FORWARDED for name, _ in headers):
            here = is_loopback(peer) and is_loopback(host_name(host) or "")
            return ("http", peer) if here else None
        schemes = {value.strip().lower() for name, value in headers if name == b"x-forwarded-proto"}
        if peer not in self._proxies or schemes != {b"https"}:
            return None
        return "https", self._proxies.client(headers) or peer


def _problem(method: str, ours: str, given: Mapping[bytes, str]) -> str | None:
    """Why this method may not be used from where it comes."""
    site, origin = given.get(b"sec-fetch-site"), given.get(b"origin")
    if method in ("GET", "HEAD"):
        navigates = given.get(b"sec-fetch-mode") == "navigate"
        if site not in (None, "same-origin", "none") and not navigates:
            return "pages of others may not load parts of the console"
        return None
    # Either says that a page of ours sent it; both where both came.
    if (site is not None and site != "same-origin") or (origin is not None and origin.lower() != ours.lower()):
        return f"pages of {escape_text(origin or 'others', _SHOWN)!r} may not change anything here"
    if site is None and origin is None:
        return "a request that changes something must name its Origin"
    return None


def _refused(status: int, words: str) -> Response:
    return PlainTextResponse(f"{words}\n", status)
