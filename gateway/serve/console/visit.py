"""One request to a page by somebody who is signed in, and what its form holds.

Turns a body of a form into fields, within a bound, and refuses one that none of our forms sent. A page that its browser
shows already is not made again.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from gateway.errors import RequestInvalid
from gateway.serve.console.sign_in import Session
from gateway.serve.http.body import BodyUnread, media_type, read_body

FORM_BYTES: Final = 512 * 1024
"""Bytes of a form."""
_FIELDS: Final = 200
CSRF: Final = "csrf"
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Visit:
    """A request of somebody who is signed in."""

    request: Request
    session: Session
    form: Form
    """Fields of the form that was sent; empty for a page that is asked for."""

    def query(self, name: str) -> str:
        """A parameter of the address; empty where there is none."""
        return self.request.query_params.get(name, "")


class Page(NamedTuple):
    """A page of the console."""

    path: str
    show: Callable[[Visit], Awaitable[Response]]
    methods: Sequence[str] = ("GET",)


async def unless_shown(visit: Visit, told: Sequence[object], make: Callable[[], Awaitable[Response]]) -> Response:
    """The page, or 304 where the browser has it: who looks asks every other second (`static/live.js`).

    `told`: what the page shows, or numbers that change with it. The tag is made of these with a key of the session: it
    says nothing, and a page of another session, or of a gateway that was before this one, has another.
    """
    digest = blake2b(repr(told).encode(), key=visit.session.csrf.encode(), digest_size=16).hexdigest()
    tag = f'"{digest}"'
    page = Response(status_code=304) if visit.request.headers.get("if-none-match") == tag else await make()
    page.headers["etag"] = tag
    return page


async def read_form(request: Request, bound: int = FORM_BYTES) -> Form:
    """The fields of a form; of a name that came twice the last.

    Raises:
        BodyOverLimit: more bytes.
        BodyUnread: it is no form.
        RequestInvalid: too many fields.
    """
    content_type = request.headers.get("content-type", "")
    if media_type(content_type) != "application/x-www-form-urlencoded":
        raise BodyUnread(f"Content-Type {content_type!r:.80} is not read here, expected a form")
    body = await read_body(request, bound)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS)
    except (ValueError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"the form can't be read: {error}") from None
    return dict(pairs)


def is_our_form(session: Session, form: Form) -> bool:
    """Whether a page that was made for this session sent it."""
    return hmac.compare_digest(form.get(CSRF, "").encode("utf-8", "replace"), session.csrf.encode())
