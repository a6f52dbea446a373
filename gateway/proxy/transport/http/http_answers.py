"""Answers of HTTP servers as outcomes of a request: a result, or an error that says why there is none.

Turns a status and a body, or a message of a body or an event, into a result or an error of
`proxy/transport/transport_interface.py`, with a sentence for the person who has to solve it. It sends nothing and keeps
nothing.
"""

import re
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final

from gateway.config.address import Address
from gateway.escape import escape_text
from gateway.http1.connection import Connection
from gateway.protocol.lines import LongEvent
from gateway.protocol.mending import BrokenAnswer, mend_message, number_of, read_batch
from gateway.protocol.messages import Failure, Malformed, Response, RpcMessage, parse_answer, parse_message
from gateway.proxy.transport.transport_interface import (
    LinkLost,
    MaybeForgotten,
    NoAnswer,
    PeerError,
    Unfit,
    names_session,
    too_long,
)

_CHALLENGE_BOUND: Final = 8192
_BEARER: Final = re.compile(r"(?i)(?:^|,)\s*bearer\s+")
_ESCAPED: Final = re.compile(r"\\(.)")
_PARAMETER: Final = re.compile(r'([A-Za-z][\w-]{0,63})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')


def common_headers(address: Address) -> dict[str, str]:
    """The headers of every request to this address: the host, who we are, its credentials, and no compression."""
    headers = {
        "host": address.origin.authority,
        "user-agent": f"codec-gateway/{version('codec-gateway')}",
        "accept-encoding": "identity",
    }
    return headers if address.authorization is None else {**headers, "authorization": address.authorization}


def media_type(content_type: str) -> str:
    """The bare type in lower case, without `charset` and the like."""
    return content_type.partition(";")[0].strip().lower()


def status_words(status: int) -> str:
    """Words such as `HTTP 404 Not Found`; the server's own reason phrase is not used."""
    try:
        return f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"


def challenge_parameters(www_authenticate: str) -> dict[str, str]:
    """The parameters of a `Bearer` challenge (RFC 6750, 3), names in lower case; of repeated ones the first."""
    text = www_authenticate[:_CHALLENGE_BOUND]
    found: dict[str, str] = {}
    if (scheme := _BEARER.search(text)) is not None:
        for match in _PARAMETER.finditer(text, scheme.end()):
            value = match[3] if match[2] is None else _ESCAPED.sub(r"\1", match[2])
            found.setdefault(match[1].lower(), value)
    return found


JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_PLAIN: Final = frozenset({"", "text/plain"})
"""Types under which servers send JSON, too."""
ACCEPTED: Final = "it accepted the request but sent no answer (HTTP 202)"
_REFUSAL_BOUND: Final = 64 * 1024
_EXCERPT: Final = 200
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SKIPPED: Final = 2
"""A notification over the bound is read up to this many times the bound before its stream is given up."""
_WAYS_OUT: Final = {
    401: "it asks for credentials: set an Authorization header under `headers`, or `oauth`, for this server, or run "
    "`codec-gateway login` for it",
    403: "it forbids the request: check the credentials under `headers` or `oauth`, and their permissions",
    404: "check the `url` of this server",
    405: "check that the `url` of this server is that of its MCP endpoint",
    406: "check that the `url` of this server is that of its MCP endpoint",
}


def answer_type(connection: Connection) -> str:
    """The type of an answer with a result or an error in it, `JSON` or `EVENTS`; empty: it is none.

    Any status of success and any type that JSON is sent under will do; official clients take most of them.
    """
    if not 200 <= connection.status < 300:
        return ""
    kind = media_type(connection.header("content-type"))
    if kind in (JSON, EVENTS):
        return kind
    kind, *_ = kind.split(",")
    if kind == EVENTS:
        return EVENTS
    is_empty = connection.header("content-length") == "0" or connection.status == 204
    return JSON if "json" in kind or (kind in _PLAIN and not is_empty) else ""


async def read_json(connection: Connection, number: int, bound: int, version: str) -> dict[str, Any]:
    """Return the result in a JSON body. `version`: the negotiated protocol version.

    Raises:
        PeerError, NoAnswer, LinkLost: see `Transport.request`.
    """
    body = await connection.read(bound)
    if body is None:
        raise Unfit(too_long(bound))
    if connection.status == 202 and not body.strip():
        raise NoAnswer(ACCEPTED)
    messages = read_messages(body, version)
    if isinstance(usual := messages[0], Response) and usual.id == number:
        return usual.result
    answers = (
        each
        for each in messages
        if isinstance(each, Response | Failure | BrokenAnswer) and number_of(each.id) == number
    )
    message = next(answers, messages[0])
    if isinstance(message, Response) and number_of(message.id) == number:
        return message.result
    if isinstance(message, Failure):
        raise PeerError(message.error)
    if isinstance(message, BrokenAnswer):
        raise NoAnswer(message.detail)
    if isinstance(message, Malformed):
        raise NoAnswer(f"its answer is not a JSON-RPC response: {message.detail}")
    raise NoAnswer("its answer is not a response to this request")


def read_messages(data: bytes, version: str) -> list[RpcMessage | BrokenAnswer | Malformed]:
    """Read one message, or those of a batch, as far as they can be read."""
    message = parse_answer(data)
    if not isinstance(message, Malformed):
        return [message]
    return read_batch(data, version) or [mend_message(data, message)]


def why_given_up(event: LongEvent, bound: int, *, waiting: bool) -> Unfit | None:
    """Why a stream is given up at an event over the bound; None: only that event is skipped. `waiting`: whether the
    stream belongs to a request; an event that is not a call may then be its answer."""
    if waiting and not event.data.is_call:
        return Unfit(too_long(bound))
    if not event.ended and event.data.length > _SKIPPED * bound:
        return Unfit(f"it sent a message of more than {_SKIPPED * bound} bytes (limits.result_bytes is {bound})")
    return None


async def read_refusal(connection: Connection, *, in_session: bool) -> Exception:
    """Return why there is no result, for an answer that `answer_type` does not know.

    `in_session`: whether our session id was sent, which the server may have forgotten.
    """
    body = await _read_short(connection)
    words = status_words(connection.status)
    # With other statuses from 500 on, the request may have run, and ended the session.
    refused = 400 <= connection.status < 500 or connection.status == 503
    if in_session and refused and names_session(body.decode("utf-8", "replace")):
        return MaybeForgotten(words + _excerpt(media_type(connection.header("content-type")), body))
    if connection.status in (401, 403):
        return NoAnswer(f"{words}: {_WAYS_OUT[connection.status]}")
    kind = media_type(connection.header("content-type"))
    if kind == JSON and isinstance(failure := parse_message(body), Failure):
        return PeerError(failure.error)
    if connection.status == 200:
        return NoAnswer(
            f"its answer is of type {kind[:100]!r}; expected {JSON} or {EVENTS}: check the `url` of this server"
        )
    if connection.status == 202:
        return NoAnswer(ACCEPTED)
    if connection.status in _REDIRECTS:
        where = escape_text(connection.header("location"), _EXCERPT)
        return NoAnswer(redirect_words(connection.status, f"to {where!r}" if where else "without saying where"))
    hint = _WAYS_OUT.get(connection.status)
    return NoAnswer(words + _excerpt(kind, body) + (f": {hint}" if hint else ""))


def redirect_words(status: int, where: str) -> str:
    """The error text for a redirect that we don't follow: to elsewhere, one too many, or one that drops the request."""
    return f"it redirects {where} ({status_words(status)}): set the `url` of this server to its new address"


async def _read_short(connection: Connection) -> bytes:
    try:
        return await connection.read(_REFUSAL_BOUND) or b""
    except (LinkLost, NoAnswer):
        return b""


def _excerpt(kind: str, body: bytes) -> str:
    if not body or kind not in (JSON, "text/plain"):
        return ""
    text = body[: 4 * _EXCERPT].decode("utf-8", "replace").strip()
    return f" ({escape_text(text, _EXCERPT)})"
