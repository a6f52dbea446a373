"""The pages at which users sign in to servers where each has a sign-in of their own: `/sign-in`, and the way back.

Turns a server's name and the user's credential for this gateway into the address of the server's authorization server,
and the browser that comes back from there into a sign-in of exactly that user. The credential proves who opens the
page, so a link is of no use to anybody else, and a cookie proves that the same browser comes back. A page has no
script, and repeats nothing that it was sent.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.gateway_config import CALLBACK, UpstreamConfig
from gateway.errors import ConfigError, RequestInvalid
from gateway.escape import escape_text
from gateway.http1.connection import LinkLost, NoAnswer
from gateway.observe.logs import get_logger
from gateway.serve.auth.gateway_token import HostGuard
from gateway.serve.auth.identity import CredentialRefused, Identity
from gateway.serve.auth.rate_limiter import RateRefused
from gateway.serve.http.plain_pages import HTML, POLICY, page_bytes
from gateway.serve.http.request_parts import media_type, read_body

if TYPE_CHECKING:
    # A gateway without such servers loads no cryptography.
    from gateway.proxy.transport.oauth.user_sign_ins import UserSignIns

PAGE: Final = CALLBACK.rpartition("/")[0]
_FORM_BYTES: Final = 64 * 1024
_FORM_POLICY: Final = POLICY.replace("form-action 'none'", "form-action 'self'")
_REASON: Final = 500
_FORM: Final = (
    "<p>{why}</p><form method='post'><p><label for='key'>Your API key or access token for this gateway</label><br>"
    "<input id='key' name='key' type='password' autocomplete='off' required></p>"
    "<p><button type='submit'>Continue</button></p></form>"
    "<p>Enter nothing here if somebody else gave you the key: the account that you sign in with would become theirs to "
    "use.</p>"
)
_WHY: Final = "A server behind this gateway needs you to sign in to it. First show who you are here."
Identify = Callable[[str, str], Awaitable[Identity | RateRefused | None]]
"""Takes a credential and the client's address; returns whose it is, None: nobody needs one. Raises
`CredentialRefused`."""


@dataclass(frozen=True, slots=True)
class _Page:
    """An answer. `body` is HTML."""

    status: int
    body: str
    cookie: str = ""


class SignInPages:
    """Answers the two paths, and passes on everything else."""

    def __init__(
        self,
        app: ASGIApp,
        identify: Identify,
        sign_ins: "UserSignIns",
        servers: Callable[[], Sequence[UpstreamConfig]],
        signed_in: Callable[[str, str], None],
        hosts: Iterable[str],
    ) -> None:
        """`servers`: those that there are now. `signed_in` is told the server and the owner of each new sign-in.
        `hosts`: the names of this gateway; those of the servers' `redirect_url` at the start are, too."""
        redirects = (urlsplit(_origin_of(each)).netloc for each in servers() if each.has_user_pages)
        self._guarded = HostGuard(self._answer, (*hosts, *redirects))
        self._app = app
        self._identify = identify
        self._sign_ins = sign_ins
        self._servers = servers
        self._signed_in = signed_in
        self._log = get_logger("serve")

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection."""
        if scope["type"] == "http" and scope["path"] in (PAGE, CALLBACK):
            return self._guarded(scope, receive, send)
        return self._app(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        method, is_page = request.method, request.url.path == PAGE
        if method == "POST" and is_page:
            page = await self._begin(request)
        elif method != "GET":
            page = _Page(405, "<h1>Not here</h1><p>This page is for a browser.</p>")
        else:
            page = _Page(200, f"<h1>Sign in</h1>{_FORM.format(why=_WHY)}") if is_page else await self._finish(request)
        await _send(page, send)

    async def _begin(self, request: Request) -> _Page:
        try:
            key, name = await _read_form(request), request.query_params.get("server", "")
            identity = await self._identify(key, request.client.host if request.client else "")
        except RequestInvalid as error:
            return _problem(error.message, 400)
        except CredentialRefused:
            return _Page(401, f"<h1>Sign in</h1>{_FORM.format(why='This gateway does not accept that credential.')}")
        if isinstance(identity, RateRefused):
            what = "bad credentials came from your address" if identity.limit == "tries" else "requests came from you"
            return _problem(f"too many {what}: try again later", 429)
        if identity is None or identity.principal.alone:
            return _problem(f"whoever needs no key of their own here uses the sign-in of codec-gateway login {name}")
        principal = identity.principal
        config = next((each for each in self._own() if each.name == name and principal.sees(each.name)), None)
        if config is None:
            return _problem("there is no such server for you: open the link that you were given, to its end", 404)
        if request.headers.get("origin") != _origin_of(config):
            # Another page could send its own key, so that what you agree to becomes its user's.
            return _problem("the form was not sent by this page: open the link again", 403)
        try:
            begun = await self._sign_ins.begin(config, principal.owner)
        except (NoAnswer, LinkLost, ConfigError) as error:
            return _problem(f"can't sign in to {name!r}: {error}", 502)
        self._log.info("sign-in of a user begun", server=name, principal=principal.name)
        host = escape(urlsplit(begun.address).hostname or "")
        body = (
            f"<h1>Sign in to {escape(name)}</h1><p>You are {escape(escape_text(principal.name, 300))} at this gateway. "
            f"What you agree to now is used for your calls only.</p>"
            f"<p><a rel='noreferrer' href='{escape(begun.address)}'>Continue at {host}</a></p>"
        )
        secure = "; Secure" if _origin_of(config).startswith("https:") else ""
        return _Page(200, body, f"{begun.cookie}={begun.secret}; Path=/; HttpOnly; SameSite=Lax; Max-Age=900{secure}")

    async def _finish(self, request: Request) -> _Page:
        try:
            server, owner = await self._sign_ins.finish(request.url.query, request.cookies, self._own())
        except (NoAnswer, LinkLost, ConfigError) as error:
            return _problem(f"you are not signed in: {error}", 400)
        self._signed_in(server, owner)
        self._log.info("user signed in to upstream", server=server)
        return _Page(200, f"<h1>Signed in to {escape(server)}</h1><p>You can close this page and go on.</p>")

    def _own(self) -> list[UpstreamConfig]:
        return [each for each in self._servers() if each.has_user_pages]


async def _read_form(request: Request) -> str:
    """The credential in the form. Raises `RequestInvalid`."""
    if media_type(request.headers.get("content-type", "")) != "application/x-www-form-urlencoded":
        raise RequestInvalid("the form can't be read: open the link again")
    try:
        fields = parse_qs((await read_body(request, _FORM_BYTES)).decode("ascii"), max_num_fields=8)
    except ValueError:
        raise RequestInvalid("the form can't be read: open the link again") from None
    return fields.get("key", [""])[0].strip()


def _origin_of(config: UpstreamConfig) -> str:
    """That of this gateway's page, as browsers write it."""
    redirect = urlsplit("" if config.auth is None else config.auth.redirect_url or "")
    usual = {"http": 80, "https": 443}.get(redirect.scheme)
    host = f"[{redirect.hostname}]" if ":" in (redirect.hostname or "") else redirect.hostname
    return f"{redirect.scheme}://{host}{'' if redirect.port in (None, usual) else f':{redirect.port}'}"


def _problem(words: str, status: int = 400) -> _Page:
    return _Page(status, f"<h1>Not signed in</h1><p>{escape(escape_text(words, _REASON))}</p>")


async def _send(page: _Page, send: Send) -> None:
    data = page_bytes("Sign in", page.body)
    headers = [
        (b"content-type", HTML.encode()),
        (b"content-length", str(len(data)).encode()),
        (b"content-security-policy", _FORM_POLICY.encode()),
        (b"x-content-type-options", b"nosniff"),
        # With `no-referrer`, browsers would not say which page sent the form.
        (b"referrer-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
        *([(b"set-cookie", page.cookie.encode())] if page.cookie else []),
    ]
    await send({"type": "http.response.start", "status": page.status, "headers": headers})
    await send({"type": "http.response.body", "body": data})
