"""What every request to the console must satisfy, and the headers that every answer carries.

Wraps an ASGI application so that browsers isolate it: it can't be framed, it loads nothing from other sites, and
nothing is cached. A request must name one of the gateway's host names (against DNS rebinding), come from this machine
or over TLS, and, to change something, come from one of the console's own pages. It knows no session and no page.
"""

from collections.abc import Mapping
from typing import Final

from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config.address import host_name, is_loopback
from gateway.config.gateway_config import ServeConfig
from gateway.escape import escape_text
from gateway.serve.auth.gateway_token import names_us, own_hosts
from gateway.serve.http.connection_limits import FORWARDED, TrustedProxies

SCHEME: Final = "console.scheme"
"""Key in the ASGI scope: the scheme that the browser uses, `http` (on this machine) or `https`."""
CLIENT: Final = "console.client"
"""Key in the ASGI scope: the browser's address."""
_CONTENT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[bytes, bytes]] = {
    b"content-security-policy": _CONTENT.encode(),
    b"x-content-type-options": b"nosniff",
    # Not `no-referrer`: then browsers send `Origin: null` even with our own forms, so that no Origin could be checked.
    b"referrer-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"x-frame-options": b"DENY",
    b"cache-control": b"no-store",
}
_ONCE: Final = (b"host", b"origin", b"sec-fetch-site", b"sec-fetch-mode")
_SHOWN: Final = 100
_NO_TLS: Final = (
    "The console shows what models and tools say, so other machines reach it only over TLS. Open it on this machine at "
    "127.0.0.1 (from elsewhere through an ssh -L tunnel), or put a proxy with TLS in front of the admin port: set "
    "serve.trusted_proxies to its address and add its host name to serve.allowed_hosts, and have it send "
    "X-Forwarded-For, and X-Forwarded-Proto with the value https."
)


class Policy:
    """Checks requests, and adds the headers to answers."""

    def __init__(self, app: ASGIApp, serve: ServeConfig) -> None:
        self._app = app
        self._proxies = TrustedProxies(serve.trusted_proxies)
        self._hosts = frozenset(host.lower() for host in own_hosts(serve))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one HTTP request."""

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
        """The scheme and the address that the browser uses, or the response that refuses the request."""
        given = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if any(sum(name == each for name, _ in scope["headers"]) > 1 for each in _ONCE):
            return _refused(
                400, "a Host, Origin, Sec-Fetch-Site or Sec-Fetch-Mode header was sent more than once: send each once"
            )
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
        if not any(name in FORWARDED for name, _ in headers):
            here = is_loopback(peer) and is_loopback(host_name(host) or "")
            return ("http", peer) if here else None
        schemes = {value.strip().lower() for name, value in headers if name == b"x-forwarded-proto"}
        if peer not in self._proxies or schemes != {b"https"}:
            return None
        return "https", self._proxies.client(headers) or peer


def _problem(method: str, ours: str, given: Mapping[bytes, str]) -> str | None:
    """Why the page that a request comes from may not use this method; None where it may."""
    site, origin = given.get(b"sec-fetch-site"), given.get(b"origin")
    if method in ("GET", "HEAD"):
        navigates = given.get(b"sec-fetch-mode") == "navigate"
        if site not in (None, "same-origin", "none") and not navigates:
            return "pages of other sites may not load parts of the console: open it in a tab of its own"
        return None
    # Each of the headers that was sent must say that a page of ours sent the request.
    if (site is not None and site != "same-origin") or (origin is not None and origin.lower() != ours.lower()):
        shown = "another site" if origin is None else repr(escape_text(origin, _SHOWN))
        return f"pages of {shown} may not change anything here: use the console's own pages"
    if site is None and origin is None:
        return "a request that changes something must have an Origin header, which browsers send"
    return None


def _refused(status: int, words: str) -> Response:
    return PlainTextResponse(f"{words}\n", status)
