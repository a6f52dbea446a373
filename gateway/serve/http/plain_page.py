"""A page of HTML that loads nothing but its own style: its parts to bytes and headers.

For what a person may open in a browser without a credential: no script, no form, no frame, nothing from elsewhere.
"""

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final

from starlette.types import Scope, Send

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
