"""The console as an application: who is signed in, which page answers, and what an error looks like.

Turns a request into a page. A browser that is not signed in gets the sign-in form and the static files only.
"""

from collections.abc import Awaitable, Callable
from math import ceil
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from codec_console.conversations import Conversations
from codec_console.missing import PageNotFound
from codec_console.pins import Pins
from codec_console.policy import CLIENT, SCHEME
from codec_console.render import Renderer
from codec_console.servers import Servers
from codec_console.sign_in import SESSION_SECONDS, USED, Session, SignIn, SignInRefused
from codec_console.static_files import read_static_files
from codec_console.tokenizer import Tokenizer
from codec_console.tools import Tools
from codec_console.visit import Form, Page, Visit, is_our_form, read_form
from codec_console.why import Why
from codec_console.words import words_of
from gateway.config.gateway_config import ServeConfig
from gateway.documentation.pages import ANYWHERE
from gateway.errors import ConfigError, GatewayError
from gateway.observe.audit import AuditLine
from gateway.observe.logs import get_logger
from gateway.serve.admin.extra_pages import GatewayParts
from gateway.serve.auth.identity import OPERATOR
from gateway.serve.http.error_answers import error_answer

NAVIGATION: Final = (
    ("/console/conversations", "Conversations"),
    ("/console/why", "Why"),
    ("/console/servers", "Servers"),
    ("/console/tokenizer", "Tokenizer"),
)
"""Path and title of each section, in the order in which they are shown."""
_SIGN_IN: Final = "/console/sign-in"
_SIGN_IN_BYTES: Final = 4096

log = get_logger("console")


class Console:
    """All pages of the console."""

    def __init__(self, sources: GatewayParts, sign_in: SignIn) -> None:
        self._sources = sources
        self._sign_in = sign_in
        sources.agent.recall.watch(sign_in.is_anybody_in)
        self._renderer = Renderer()
        self._conversations = Conversations(sources, self.render)
        others = (part(sources, self.render) for part in (Why, Servers, Pins, Tools, Tokenizer))
        self._parts = (self._conversations, *others)
        sign_in.when_nobody_is_in(self._forget)
        self._static = read_static_files()

    def app(self) -> Starlette:
        """The pages as an application, whose paths begin with `/console`."""
        handlers: dict[Any, Any] = {404: self._not_found, 405: self._not_found}
        return Starlette(routes=self.routes(), exception_handlers=handlers)

    def routes(self) -> list[Route]:
        """The routes of all pages."""
        return [
            Route(_SIGN_IN, self._show_sign_in, methods=["GET"]),
            Route(_SIGN_IN, self._enter, methods=["POST"]),
            Route("/console/sign-out", self._closed(self._leave), methods=["POST"]),
            Route("/console/texts", self._closed(self._switch_texts), methods=["POST"]),
            Route("/console/static/{name}", self._show_static, methods=["GET"]),
            Route("/console", self._closed(self._begin), methods=["GET"]),
            *(self._route(page) for part in self._parts for page in part.pages()),
        ]

    def render(self, template: str, visit: Visit, /, **values: Any) -> Response:
        """Render a page for somebody who is signed in."""
        common = {
            "path": visit.request.url.path,
            "section": visit.request.url.path,
            "navigation": NAVIGATION,
            "csrf": visit.session.csrf,
            "words": visit.words,
            "here": _own_path(visit.request),
            "engine": visit.engine,
        }
        return self._renderer.page(template, {**common, **values})

    def _forget(self) -> None:
        """Drop what was recorded for the console, once nobody is signed in."""
        self._sources.agent.recall.forget_records()
        self._conversations.forget()

    def _route(self, page: Page) -> Route:
        return Route(page.path, self._closed(page.show), methods=list(page.methods))

    def _closed(self, show: Callable[[Visit], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a page: it requires a session, and for a POST a form of this session's own pages."""

        async def answer(request: Request) -> Response:
            session = self._sign_in.session(request.cookies.get(_cookie_of(request), ""))
            if session is None:
                if request.method == "POST":
                    return self._refused(
                        401, "you are not signed in, or your session has ended: sign in at /console/sign-in"
                    )
                return RedirectResponse(_SIGN_IN, 303)
            try:
                if request.method != "POST":
                    return await show(self._visit(request, session, {}))
                form = await read_form(request)
                if not is_our_form(session, form):
                    return self._refused(
                        403, "this form does not belong to your session: reload its page and send it again"
                    )
                return await show(self._visit(request, session, form))
            except PageNotFound as error:
                return self._refused(404, error.message)
            except Exception as error:  # noqa: BLE001 - the boundary of these pages, as `gateway/serve/http/error_answers.py` for /v1
                status, body = error_answer(error)
                return self._refused(status, body["error"]["message"])

        return answer

    def _visit(self, request: Request, session: Session, form: Form) -> Visit:
        direct = request.scope[SCHEME] == "http"
        words = words_of(self._sources.config, chosen=session.texts, direct=direct)
        return Visit(request, session, form, words, self._sources.status.engine())

    async def _begin(self, _visit: Visit) -> Response:
        return RedirectResponse(NAVIGATION[0][0], 303)

    async def _show_sign_in(self, request: Request) -> Response:
        key = request.query_params.get("key", "")
        if key and self._sign_in.is_used(key):
            # The browser that used it goes on to the console; nobody else is promised a sign-in.
            if self._sign_in.session(request.cookies.get(_cookie_of(request), "")) is not None:
                return RedirectResponse("/console", 303)
            return self._sign_in_page(request, "", USED, 403)
        return self._sign_in_page(request, key)

    async def _enter(self, request: Request) -> Response:
        """Sign in. It takes a POST, so that merely opening the URL (a preview, a prefetch) does not use up the key."""
        address = str(request.scope[CLIENT])
        try:
            form = await read_form(request, _SIGN_IN_BYTES)
            cookie = self._sign_in.enter(form.get("key", "").strip(), address)
        except SignInRefused as refusal:
            self._sources.metrics.access.auth_failed("unknown")
            log.warning("sign-in to the console refused", address=address, reason=refusal.words)
            if not refusal.wait:
                return self._sign_in_page(request, "", refusal.words, 403)
            answer = self._sign_in_page(request, "", refusal.words, 429)
            answer.headers["Retry-After"] = str(ceil(refusal.wait))
            return answer
        except ConfigError as error:
            return self._sign_in_page(request, "", error.message, 503)
        except GatewayError as error:
            status, body = error_answer(error)
            return self._sign_in_page(request, "", body["error"]["message"], status)
        log.info("an operator signed in to the console", address=address)
        answer = RedirectResponse("/console", 303)
        answer.set_cookie(
            _cookie_of(request),
            cookie,
            max_age=int(SESSION_SECONDS),
            path="/console",
            secure=request.scope[SCHEME] == "https",
            httponly=True,
            samesite="strict",
        )
        return answer

    async def _leave(self, visit: Visit) -> Response:
        name = _cookie_of(visit.request)
        self._sign_in.leave(visit.request.cookies.get(name, ""))
        answer = RedirectResponse(_SIGN_IN, 303)
        answer.delete_cookie(name, path="/console", httponly=True, samesite="strict")
        return answer

    async def _switch_texts(self, visit: Visit) -> Response:
        """Show or hide the text of conversations in this session; the configuration may forbid it."""
        shown, allowed = visit.form.get("texts") == "on", visit.words.can_switch
        self._note_switch(visit, shown, allowed)
        if not allowed:
            setting = self._sources.config.console.texts
            return self._refused(403, f'the configuration decides here (console.texts = "{setting}"): change it there')
        self._sign_in.choose_texts(visit.request.cookies.get(_cookie_of(visit.request), ""), shown)
        back = visit.form.get("back", "")
        return RedirectResponse(back if back.startswith("/console/") else NAVIGATION[0][0], 303)

    def _note_switch(self, visit: Visit, shown: bool, allowed: bool) -> None:
        switched, outcome = "on" if shown else "off", "ok" if allowed else "refused"
        log.info(
            "the text of conversations was switched in a session of the console",
            texts=switched,
            outcome=outcome,
            address=str(visit.request.scope[CLIENT]),
        )
        if self._sources.audit is not None:
            line = AuditLine(OPERATOR.principal.name, "console", "console/texts", outcome, tool=switched)
            self._sources.audit.record(line)

    async def _show_static(self, request: Request) -> Response:
        found = self._static.get(request.path_params["name"])
        return (
            Response(found.data, 200, found.headers)
            if found
            else self._refused(404, f"the console has no file {request.path_params['name']!r:.80}")
        )

    async def _not_found(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return self._refused(status, f"the console has no page for {request.method} {request.url.path}")

    def _sign_in_page(self, request: Request, key: str, problem: str = "", status: int = 200) -> Response:
        values = _signed_out(key=key, problem=problem, admin=_admin_url(request))
        if request.scope[SCHEME] == "https":
            values |= {"program": ANYWHERE.program}  # anybody may read it; no folder of this machine
        return self._renderer.page("sign_in.html", values, status)

    def _refused(self, status: int, words: str) -> Response:
        return self._renderer.page("refused.html", _signed_out(status=status, words=words), status)


def _signed_out(**values: Any) -> dict[str, Any]:
    """Values for a page shown to somebody who is not signed in."""
    return {"path": "", "section": "", "navigation": (), "csrf": "", "engine": None, **values}


def _own_path(request: Request) -> str:
    """The path and query of the page that is shown, to come back to."""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


def _admin_url(request: Request) -> str | None:
    """The admin port's URL, for `codec-gateway console --admin`; None where the command's default is right."""
    if request.scope[SCHEME] == "https":
        return f"https://{request.headers['host']}"
    server = request.scope.get("server")
    return f"http://127.0.0.1:{server[1]}" if server and server[1] != ServeConfig().admin_port else None


def _cookie_of(request: Request) -> str:
    """The cookie's name. Browsers send a host's cookies to all its ports, so two gateways on a host need two names."""
    server = request.scope.get("server")
    return f"codec-console-{server[1] if server else 0}"
