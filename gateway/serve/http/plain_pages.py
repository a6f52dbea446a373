"""Pages of HTML that load nothing but their own style: `GET /`, and the documentation of this version."""

import json
from base64 import b64encode
from collections.abc import Awaitable, Mapping
from hashlib import sha256
from html import escape
from types import MappingProxyType
from typing import Final

import anyio.to_thread
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.address import host_name, is_loopback
from gateway.config.gateway_config import ServeConfig
from gateway.documentation.pages import (
    ANYWHERE,
    INDEX,
    CommandSpelling,
    html_form,
    open_pages,
    own_spelling,
    print_form,
)
from gateway.serve.http.connection_limits import FORWARDED
from gateway.serve.http.error_answers import error_response

# For what a person may open in a browser without a credential: no script, no form, no frame, nothing from elsewhere.

_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:3rem auto;padding:0 1rem;color:#1d2530;"
    "background:#fbfbf9}code,pre{font-family:ui-monospace,monospace;font-size:.9em}pre{overflow-x:auto;padding:.7rem;"
    "background:#f0f0ec}dt{margin-top:.9rem;font-weight:600}dd{margin:0}table{border-collapse:collapse;display:block;"
    "overflow-x:auto}td,th{border:1px solid #c9ccd1;padding:.25rem .5rem;text-align:left;vertical-align:top}"
    "img{max-width:100%;background:#fff}a{color:#0b5cad}"
    "@media(prefers-color-scheme:dark){body{color:#e4e7eb;background:#15181d}pre{background:#20252c}"
    "td,th{border-color:#434a54}a{color:#7ab8f5}}"
)
POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HTML: Final = "text/html; charset=utf-8"


def page_bytes(title: str, body: str) -> bytes:
    """The whole page; `body` is HTML."""
    head = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return (
        f'<!doctype html><html lang="en"><head>{head}<title>{escape(title)}</title><style>{_STYLE}</style></head>'
        f"<body>{body}</body></html>\n"
    ).encode()


async def send_answer(
    scope: Scope, send: Send, body: bytes, kind: str, policy: str = POLICY, status: int = 200
) -> None:
    """Answer; a HEAD request gets no body."""
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        (b"vary", b"accept"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


# A page is rendered when it is first asked for, in a thread, and kept: there are as many as there are files. What is
# asked for is looked up among their names; no path is made of it. Pages are the same for everybody, so no credential is
# needed.

ROOT: Final = "/docs"
_KINDS: Final = {".svg": "image/svg+xml", ".png": "image/png"}
_TEXT: Final = "text/plain; charset=utf-8"
_PICTURE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a picture that is opened by itself: it may contain styles, and nothing else takes effect."""


class DocPages:
    """Answers requests below `/docs`."""

    def __init__(self, spelling: CommandSpelling) -> None:
        """`spelling`: how pages name commands."""
        self._spelling = spelling
        self._made: dict[tuple[str, bool], tuple[bytes, str]] = {}

    async def answer(self, scope: Scope, receive: Receive, send: Send, *, as_html: bool) -> None:
        """Answer one GET or HEAD request."""
        name = scope["path"].removeprefix(ROOT).removeprefix("/").removesuffix(".md") or INDEX
        if scope["path"] == ROOT:
            # Links are relative to the folder.
            start = {"type": "http.response.start", "status": 307, "headers": [(b"location", f"{ROOT}/".encode())]}
            await send(start)
            await send({"type": "http.response.body", "body": b""})
        elif name not in open_pages().files:
            await self._refuse(scope, receive, send, name, as_html=as_html)
        else:
            if (name, as_html) not in self._made:
                self._made[name, as_html] = await anyio.to_thread.run_sync(self._make, name, as_html)
            body, kind = self._made[name, as_html]
            await send_answer(scope, send, body, kind, _PICTURE_POLICY if kind.startswith("image/") else POLICY)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, name: str, *, as_html: bool) -> None:
        words = f"no page is called {name!r:.100}: see {ROOT}/"
        if as_html:
            link = f'<p><a href="{ROOT}/">all pages</a></p>'
            body = page_bytes("codec-gateway", f"<h1>No such page</h1><p>{escape(words)}</p>{link}")
            await send_answer(scope, send, body, HTML, status=404)
        else:
            await error_response(404, words, code="not_found")(scope, receive, send)

    def _make(self, name: str, as_html: bool) -> tuple[bytes, str]:
        pages = open_pages()
        path = pages.path(name)
        if path.suffix in _KINDS:
            return path.read_bytes(), _KINDS[path.suffix]
        if not as_html or path.suffix != ".md":
            return print_form(pages, name, self._spelling).encode(), _TEXT
        up = "../" * name.count("/")
        top = f'<p><a href="{up}../">codec-gateway</a> · <a href="{up or "./"}">all pages</a></p>'
        return page_bytes(f"{pages.title(name)} · codec-gateway", top + html_form(pages, name, self._spelling)), HTML


# The page reveals nothing about this gateway but, to people on the same machine, where its admin port and its programs
# are, so it asks for no credential. A request that a proxy forwarded, or that names another host, comes from elsewhere.

_JSON: Final = "application/json"
_PLACES: Final = {
    "/mcp": "MCP over Streamable HTTP: the tools of all servers behind this gateway",
    "/sse": "the same over HTTP+SSE, for clients that speak nothing newer",
    "/v1/chat/completions": "OpenAI's chat completions; the gateway runs the calls of its own tools",
    "/v1/responses": "OpenAI's responses, stored and continued",
    "/v1/messages": "Anthropic's messages, for Claude Code and others; /v1/messages/count_tokens counts",
    "/v1/completions": "continues a prompt, given as text or as token ids",
    "/v1/embeddings": "embeddings, if the engine makes them",
    "/v1/models": "the models that answer",
    "/tokenize": "text to token ids by the model's own map; /detokenize is the way back",
    "/codec": "the Codec protocol: /codec/version, /codec/schema",
    "/.well-known/codec": "token maps and dictionaries, from /.well-known/codec/index.json on",
    f"{ROOT}/": "the documentation of this version",
}
_ADMIN: Final = {
    "/status": "the state of servers, tools and engine, as JSON; the command {status} prints it",
    "/healthz/ready": "whether requests can be served, and if not, why; /healthz/live: whether it runs",
    "/metrics": "metrics for Prometheus",
}
NO_PAGES: Final[Mapping[str, str]] = MappingProxyType({})
_WORDS: Final = (
    "An MCP gateway that keeps a language model's context in token ids. Programs use it at the addresses below."
)


class Home:
    """Answers GET and HEAD of `/` and of what is below `/docs`, and passes on everything else."""

    def __init__(self, app: ASGIApp, serve: ServeConfig, admin_pages: Mapping[str, str] = NO_PAGES) -> None:
        """`admin_pages`: what other packages' pages on the admin port show, by their paths."""
        self._app = app
        self._far = _Shown(serve, admin_pages, ANYWHERE, is_local=False)
        self._near = _Shown(serve, admin_pages, own_spelling(), is_local=True) if is_loopback(serve.host) else None

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection. Not `async`: another coroutine here would cost every request time."""
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return self._app(scope, receive, send)
        if scope["path"] == "/":
            shown = self._shown_to(scope)
            if _accepts(scope, _JSON) and not _accepts(scope, "text/html"):
                return send_answer(scope, send, shown.json, _JSON)
            return send_answer(scope, send, shown.page, HTML)
        if scope["path"] == ROOT or scope["path"].startswith(f"{ROOT}/"):
            return self._shown_to(scope).docs.answer(scope, receive, send, as_html=_accepts(scope, "text/html"))
        if (moved := self._shown_to(scope).moved) and (url := moved.get(f"/{scope['path'][1:].partition('/')[0]}")):
            return _name_admin_port(url, scope, receive, send)
        return self._app(scope, receive, send)

    def _shown_to(self, scope: Scope) -> "_Shown":
        return self._near if self._near is not None and _is_from_here(scope) else self._far


class _Shown:
    """What readers on this machine get, or those elsewhere."""

    def __init__(
        self, serve: ServeConfig, admin_pages: Mapping[str, str], spelling: CommandSpelling, *, is_local: bool
    ) -> None:
        origin = _admin_origin(serve) if is_local else ""
        admin = _admin_places(admin_pages, origin, f"{spelling.program} status{_admin_option(serve, origin)}")
        self.moved = {path: f"{origin}{path}" for path in admin_pages} if origin else {}
        """Where pages are that people look for here: the address on the admin port, by path."""
        self.page = page_bytes("codec-gateway", _body(admin))
        self.json = json.dumps(
            {"name": "codec-gateway", "description": _WORDS, "paths": _PLACES, "admin": admin}
        ).encode()
        self.docs = DocPages(spelling)


def _is_from_here(scope: Scope) -> bool:
    """Whether the request names this machine, and no proxy says that it comes from elsewhere."""
    if any(name in FORWARDED for name, _ in scope["headers"]):
        return False
    hosts = [host_name(value.decode("latin-1")) for name, value in scope["headers"] if name == b"host"]
    return all(host is not None and is_loopback(host) for host in hosts)


def _name_admin_port(url: str, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
    if _accepts(scope, "text/html"):
        link = _linked(f"<code>{escape(url)}</code>", url)
        body = f"<h1>Not here</h1><p>This is on the admin port: {link}</p>"
        return send_answer(scope, send, page_bytes("codec-gateway", body), HTML, status=404)
    return error_response(404, f"this is on the admin port: {url}", code="not_found")(scope, receive, send)


def _admin_origin(serve: ServeConfig) -> str:
    """The admin port's address; empty if it can't be reached from this machine alone, or is not known."""
    host = f"[{serve.admin_host}]" if ":" in serve.admin_host else serve.admin_host
    is_known = is_loopback(serve.admin_host) and serve.admin_port
    return f"http://{host}:{serve.admin_port}" if is_known else ""


def _admin_option(serve: ServeConfig, origin: str) -> str:
    """The option by which a command finds this admin port; empty where the command's default is right."""
    usual = ServeConfig()
    is_usual = (serve.admin_host, serve.admin_port) == (usual.admin_host, usual.admin_port)
    return "" if is_usual else f" --admin {origin or 'URL'}"


def _admin_places(admin_pages: Mapping[str, str], origin: str, status: str) -> dict[str, str]:
    """The pages of the admin port: with its address only for readers who can reach it, and if it is known."""
    own = {path: words.format(status=status) for path, words in _ADMIN.items()}
    return {f"{origin}{path}": words for path, words in {**admin_pages, **own}.items()}


def _body(admin: Mapping[str, str]) -> str:
    links = {path: path for path in ("/v1/models", "/codec/version", "/.well-known/codec/index.json", f"{ROOT}/")}
    links |= {"/codec": "/codec/version", "/.well-known/codec": "/.well-known/codec/index.json"}
    links |= {path: path for path in admin if path.startswith("http")}
    where = "" if any(path.startswith("http") for path in admin) else " (serve.admin_host, serve.admin_port)"
    return (
        f"<h1>codec-gateway</h1><p>{escape(_WORDS)}</p>{_rows(_PLACES, links)}"
        f"<h2>On the admin port{escape(where)}</h2>{_rows(admin, links)}"
    )


def _rows(places: Mapping[str, str], links: Mapping[str, str]) -> str:
    rows = (
        f"<dt>{_linked(f'<code>{escape(path)}</code>', links.get(path))}</dt><dd>{escape(words)}</dd>"
        for path, words in places.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _linked(shown: str, target: str | None) -> str:
    return f'<a href="{escape(target)}">{shown}</a>' if target else shown


def _accepts(scope: Scope, kind: str) -> bool:
    return any(name == b"accept" and kind.encode() in value for name, value in scope["headers"])
