"""One request to a page by somebody who is signed in, and what its form holds.

Turns the body of a form into fields, within bounds, and tells whether one of our pages sent it. A page that the browser
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

from codec_console.sign_in import Session
from codec_console.words import Words
from gateway.errors import RequestInvalid
from gateway.serve.admin.extra_pages import GatewayParts
from gateway.serve.http.request_parts import BodyUnread, media_type, read_body

FORM_BYTES: Final = 512 * 1024
"""Maximum bytes of a form."""
_FIELDS: Final = 200
CSRF: Final = "csrf"
Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Visit:
    """A request by somebody who is signed in."""

    request: Request
    session: Session
    form: Form
    """Fields of the form that was submitted; empty for a GET."""
    words: Words
    """Whether it may see the text of conversations."""
    engine: Mapping[str, object] | None
    """The state of the engine, which every page shows; None: there is none."""

    @property
    def texts(self) -> bool:
        """Whether the text of conversations is shown."""
        return self.words.shown

    def query(self, name: str) -> str:
        """A parameter of the URL's query; empty where there is none."""
        return self.request.query_params.get(name, "")

    def number(self, name: str, default: int = 0) -> int:
        """A parameter of the URL's query as a number; the default where it is none."""
        return whole_number(self.query(name), default)


class Page(NamedTuple):
    """A page of the console."""

    path: str
    show: Callable[[Visit], Awaitable[Response]]
    methods: Sequence[str] = ("GET",)


class PageGroup:
    """Pages that show the parts of one gateway."""

    def __init__(self, sources: GatewayParts, render: Callable[..., Response]) -> None:
        self._sources = sources
        self._render = render


def whole_number(given: str, default: int) -> int:
    """The text as a number; the default unless it is a decimal number of fewer than 10 digits."""
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 10 else default


async def unless_shown(visit: Visit, told: Sequence[object], make: Callable[[], Awaitable[Response]]) -> Response:
    """The page, or 304 where the browser has it already: open pages poll every other second (`static/live.js`).

    `told`: what the page shows, or values that change with it; what every page shows is added here. The tag is a digest
    of these, keyed by the session: it reveals nothing, and is different in another session or after a restart.
    """
    shown = repr((told, visit.words, visit.engine)).encode()
    tag = f'"{blake2b(shown, key=visit.session.csrf.encode(), digest_size=16).hexdigest()}"'
    page = Response(status_code=304) if visit.request.headers.get("if-none-match") == tag else await make()
    page.headers["etag"] = tag
    return page


async def read_form(request: Request, bound: int = FORM_BYTES) -> Form:
    """The fields of a form; the last value of a name that occurs more than once.

    Raises:
        BodyOverLimit: the body has more bytes than `bound`.
        BodyUnread: the body is not a form.
        RequestInvalid: the form has too many fields, or is not ASCII.
    """
    content_type = request.headers.get("content-type", "")
    if media_type(content_type) != "application/x-www-form-urlencoded":
        raise BodyUnread(
            f"Content-Type {content_type!r:.80} is not accepted here: send application/x-www-form-urlencoded"
        )
    body = await read_body(request, bound)
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_FIELDS)
    except (ValueError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"the form can't be read: {error}") from None
    return dict(pairs)


def is_our_form(session: Session, form: Form) -> bool:
    """Whether the form was sent by a page that was made for this session."""
    return hmac.compare_digest(form.get(CSRF, "").encode("utf-8", "replace"), session.csrf.encode())
