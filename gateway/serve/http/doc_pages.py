"""`GET /docs/...`: the documentation of this version, read only.

Browsers get HTML, programs the Markdown. A page is rendered when it is first asked for, in a thread, and kept: there
are as many as there are files. What is asked for is looked up among their names; no path is made of it. Pages are the
same for everybody, so no credential is needed.
"""

from html import escape
from typing import Final

import anyio.to_thread
from starlette.types import Receive, Scope, Send

from gateway.documentation.pages import INDEX, open_pages
from gateway.documentation.render import html_form, print_form
from gateway.documentation.spelling import Spelling
from gateway.serve.http.errors import error_response
from gateway.serve.http.plain_page import HTML, POLICY, page_bytes, send_answer

ROOT: Final = "/docs"
_KINDS: Final = {".svg": "image/svg+xml", ".png": "image/png"}
_TEXT: Final = "text/plain; charset=utf-8"
_PICTURE_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For a picture that is opened by itself: it may contain styles, and nothing else takes effect."""


class DocPages:
    """Answers requests below `/docs`."""

    def __init__(self, spelling: Spelling) -> None:
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
