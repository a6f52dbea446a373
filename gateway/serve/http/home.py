"""`GET /`: what this is and where things are, for a person who opened the address in a browser.

One page, and the same content as JSON, made once. It reveals nothing about this gateway (no names, no version, no
state), so it asks for no credential. It loads nothing: no script, no picture, nothing from elsewhere.
"""

import json
from base64 import b64encode
from collections.abc import Awaitable
from hashlib import sha256
from html import escape
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

_PLACES: Final = {
    "/v1/chat/completions": "OpenAI-style chat: the gateway runs the calls of its own tools",
    "/v1/messages": "the same in the shape of Anthropic's API, for Claude Code and others",
    "/v1/completions": "continues a prompt, given as text or as token ids",
    "/v1/models": "the model that answers",
    "/mcp": "MCP over Streamable HTTP: the tools of all servers behind this gateway",
    "/codec/version": "the version of the Codec protocol that this gateway speaks",
}
_WORDS: Final = (
    "An MCP gateway that keeps a language model's context in token ids. There is nothing to click: programs talk to it "
    "at the addresses below. Its state is shown by the command codec-gateway status, and at /console, /healthz/ready "
    "and /metrics of the admin port, on the machine where it runs. Its documentation starts at docs/index.md."
)
_STYLE: Final = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:3rem auto;padding:0 1rem;color:#1d2530;"
    "background:#fbfbf9}code{font-family:ui-monospace,monospace}dt{margin-top:.9rem;font-weight:600}dd{margin:0}"
    "@media(prefers-color-scheme:dark){body{color:#e4e7eb;background:#15181d}}"
)
_ROWS: Final = "".join(
    f"<dt><code>{escape(path)}</code></dt><dd>{escape(words)}</dd>" for path, words in _PLACES.items()
)
_PAGE: Final = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    f"<title>codec-gateway</title><style>{_STYLE}</style></head><body><h1>codec-gateway</h1>"
    f"<p>{escape(_WORDS)}</p><dl>{_ROWS}</dl></body></html>\n"
).encode()
_JSON: Final = json.dumps({"name": "codec-gateway", "description": _WORDS, "paths": _PLACES}).encode()
_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{b64encode(sha256(_STYLE.encode()).digest()).decode()}'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


class Home:
    """Answers `GET /` and `HEAD /`, and passes on everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        """Serve one ASGI connection. Not `async`: another coroutine here would cost every request time."""
        if scope["type"] == "http" and scope["path"] == "/" and scope["method"] in ("GET", "HEAD"):
            return self._answer(scope, send)
        return self._app(scope, receive, send)

    async def _answer(self, scope: Scope, send: Send) -> None:
        as_json = _wants_json(b",".join(value for name, value in scope["headers"] if name == b"accept"))
        body = _JSON if as_json else _PAGE
        headers = [
            (b"content-type", b"application/json" if as_json else b"text/html; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"content-security-policy", _POLICY.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"referrer-policy", b"no-referrer"),
            (b"vary", b"accept"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})


def _wants_json(accept: bytes) -> bool:
    """Whether `Accept` names JSON and does not name HTML."""
    return b"application/json" in accept and b"text/html" not in accept
