"""Answers of HTTP servers as outcomes of a request: a result, or one of the four ways in which there is none.

Turns a status with its body, a message of a body or an event into a result or an error of
`proxy/transport/interface.py`, with a sentence for the person who has to do something about it. It sends nothing and
keeps nothing.
"""

from typing import Any, Final

from gateway.http1.connection import Connection
from gateway.observe.escape import escape_text
from gateway.protocol.batches import read_batch
from gateway.protocol.mending import BrokenAnswer, mend_message
from gateway.protocol.messages import Failure, Malformed, Message, Response, parse_message
from gateway.protocol.sse import LongEvent
from gateway.proxy.transport.http.headers import media_type, status_words
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError, Unfit
from gateway.proxy.transport.requests import too_long

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream"
_REFUSAL_BOUND: Final = 64 * 1024
_EXCERPT: Final = 200
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_SKIPPED: Final = 2
"""Times the bound that is read of one notification, which nobody waits for, before its stream is given up."""
_WAYS_OUT: Final = {
    401: "it asks who we are: set an Authorization under `headers`, or `oauth`, for this server",
    403: "it knows who we are and refuses: check the credentials under `headers` or `oauth` and what they may do",
    404: "check the `url` of this server",
    405: "is `url` the address of its MCP endpoint?",
    406: "is `url` the address of its MCP endpoint?",
}


async def read_json(connection: Connection, number: int, bound: int, version: str) -> dict[str, Any]:
    """The result in a JSON body; `version`: of the protocol, as it was agreed.

    Raises:
        PeerError, NoAnswer, LinkLost: as `Transport.request`.
    """
    body = await connection.read(bound)
    if body is None:
        raise Unfit(too_long(bound))
    messages = read_messages(body, version)
    answers = (each for each in messages if isinstance(each, Response | Failure | BrokenAnswer) and each.id == number)
    message = next(answers, messages[0])
    if isinstance(message, Response) and message.id == number:
        return message.result
    if isinstance(message, Failure):
        raise PeerError(message.error)
    if isinstance(message, BrokenAnswer):
        raise NoAnswer(message.detail)
    if isinstance(message, Malformed):
        raise NoAnswer(f"its answer is not a JSON-RPC response: {message.detail}")
    raise NoAnswer("its answer is not a response to this request")


def read_messages(data: bytes, version: str) -> list[Message | BrokenAnswer | Malformed]:
    """One message, or those of a batch, read as far as they can be read."""
    message = parse_message(data)
    if not isinstance(message, Malformed):
        return [message]
    return read_batch(data, version) or [mend_message(data, message)]


def why_given_up(event: LongEvent, bound: int, *, waiting: bool) -> Unfit | None:
    """Why a stream is read no further, behind an event over the bound; None: only that event is left out.

    Args:
        waiting: the stream is that of a request, which what does not call may be the answer to.
    """
    if waiting and not event.data.is_call:
        return Unfit(too_long(bound))
    if not event.ended and event.data.length > _SKIPPED * bound:
        return Unfit(f"it sent a message of more than {_SKIPPED * bound} bytes (limits.result_bytes is {bound})")
    return None


async def read_refusal(connection: Connection, *, in_session: bool) -> Exception | None:
    """Why there is no result, from an answer that is not 200 or of no type that we read.

    Args:
        in_session: our session id was sent. None comes back where the answer means that the server forgot it.
    """
    body = await _read_short(connection)
    words = status_words(connection.status)
    if connection.status in (401, 403):
        return NoAnswer(f"{words}: {_WAYS_OUT[connection.status]}")
    kind = media_type(connection.header("content-type"))
    if kind == JSON and isinstance(failure := parse_message(body), Failure):
        return None if in_session and _is_forgotten(connection.status, failure) else PeerError(failure.error)
    if connection.status == 200:
        return NoAnswer(
            f"its answer is of type {kind[:100]!r}; expected {JSON} or {EVENTS}: check the `url` of this server"
        )
    if connection.status == 202:
        return NoAnswer("it accepted the request but does not answer it (HTTP 202)")
    if connection.status in _REDIRECTS:
        where = escape_text(connection.header("location"), _EXCERPT)
        return NoAnswer(redirect_words(connection.status, f"to {where!r}" if where else "nowhere"))
    hint = _WAYS_OUT.get(connection.status)
    return NoAnswer(words + _excerpt(kind, body) + (f": {hint}" if hint else ""))


def redirect_words(status: int, where: str) -> str:
    """What is said of a redirect that is not followed: it leads elsewhere, on and on, or would lose the request."""
    return f"it redirects {where} ({status_words(status)}): set the `url` of this server to where it is meant to go"


def _is_forgotten(status: int, failure: Failure) -> bool:
    """Whether a refusal speaks of the session and not of the request.

    The protocol has 404 for it; servers made after the TypeScript SDK's examples answer 400 with one of two sentences,
    about no request in particular.
    """
    words = str(failure.error.get("message", "")).lower()
    told = "session" in words or "not initialized" in words
    return status == 400 and failure.id is None and failure.error.get("code") == -32000 and told


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
