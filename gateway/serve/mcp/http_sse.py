"""The transport before Streamable HTTP (HTTP+SSE, 2024-11-05), for clients that speak no other.

Turns a GET into a session and its one stream of events, whose first event names the address for messages, and each POST
there into messages for that session; the answers come on the stream. A session belongs to the principal that opened it
and ends with its stream. The request that carries a call stays in the endpoint until the call is answered, although its
client has been told long before, so that limits and a stop count it. It knows no server.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs, quote

from gateway.deadlines import Deadlines
from gateway.errors import MapUnknown, RpcError
from gateway.protocol.lines import encode_event
from gateway.protocol.messages import INVALID_REQUEST, Request, encode_response
from gateway.serve.auth.identity import refusal_over_limit
from gateway.serve.mcp.http import (
    EVENTS,
    HttpRequest,
    Rejected,
    accepts,
    read_json_body,
    refuse_late,
    send_empty,
    send_frame,
    write_events,
)
from gateway.serve.mcp.http_session import CarriedStream, HttpSession, SessionLimits, read_post
from gateway.serve.mcp.http_sessions import GetWatch
from gateway.serve.mcp.methods import McpCore, check_greeting, error_answer

OLD_PATH: Final = "/sse"
_VERSION: Final = "2024-11-05"
_NAMED: Final = "session_id"
_ALLOW: Final = ((b"allow", b"GET, POST"),)
_NONE_SUCH: Final = f"there is no such session, or its event stream has ended: GET {OLD_PATH} again"
_UNREAD: Final = 8 * 1024 * 1024
"""Unread bytes on a stream beyond which its client may ask nothing more."""


def named_session(request: HttpRequest) -> str | None:
    """The session that a request names."""
    query: bytes = request.scope["query_string"]
    return next(iter(parse_qs(query.decode("latin-1")).get(_NAMED, ())), None)


class OldSessions:
    """All sessions of this transport."""

    def __init__(
        self, core: McpCore, limits: SessionLimits, dropped: Callable[[], None], name: Callable[[str], str]
    ) -> None:
        """Start with no sessions. See `HttpSessions`, which shares the limits."""
        self._core = core
        self._limits = limits
        self._dropped = dropped
        self._name = name
        self._deadlines = Deadlines()
        self._sessions: dict[str, HttpSession] = {}
        self._greeted = set[str]()

    def live(self) -> tuple[HttpSession, ...]:
        """All sessions whose clients have introduced themselves."""
        return tuple(self._sessions[each] for each in self._greeted)

    def end_all(self) -> None:
        """End every session."""
        for session in tuple(self._sessions.values()):
            self._end(session)

    def serve(self, request: HttpRequest) -> Awaitable[None]:
        """Answer one HTTP request. Raises Rejected and ClientGone."""
        if request.method == "GET":
            return self._get(request)
        if request.method == "POST":
            return self._post(request)
        raise Rejected(405, f"{OLD_PATH} takes GET and POST", headers=_ALLOW)

    async def _get(self, request: HttpRequest) -> None:
        if not accepts(request.headers.get("accept", ""), EVENTS):
            raise Rejected(406, f"the Accept header must name {EVENTS}")
        refuse_late(request)
        if (over := self._limits.sessions.take(request.principal)) is not None:
            raise Rejected(429 if over.limit == "share" else 503, over.message, headers=((b"retry-after", b"5"),))
        session = HttpSession(
            self._core,
            session_id=self._name(request.principal.name),
            version=_VERSION,
            capabilities={},
            principal=request.principal,
            token_map=request.token_map or self._core.session_map,
            dropped=self._dropped,
        )
        self._sessions[session.session_id] = session
        session.listening()
        place = f"{quote(request.scope['path'])}?{_NAMED}={quote(session.session_id, '')}"
        carried = CarriedStream(session, session.standing)
        watch = GetWatch(request, carried, self._deadlines)
        watch.look()
        try:
            await write_events(request.send, _Opened(carried, place))
        finally:
            watch.stop()
            carried.detach()
            self._end(session)

    async def _post(self, request: HttpRequest) -> None:
        session = self._session_of(request)
        body = await read_json_body(request, self._limits.body_bytes)
        posted = read_post(body, session.version)
        if (fault := posted.fault) is not None:
            frame, _ = error_answer(fault.id, {"code": fault.code, "message": fault.detail})
            await send_frame(request.send, 400, frame)
            return
        if posted.requests:
            refuse_late(request)
            if session.standing.size > _UNREAD:
                raise Rejected(429, f"{session.standing.size} bytes wait on the event stream: read it first")
            if (full := refusal_over_limit(request.scope)) is not None:
                await full(request.scope, request.receive, request.send)
                return
        if len(posted.requests) > 1:
            raise Rejected(400, "send the requests of a batch one by one")
        for message in posted.one_way:
            session.take(message)
        await send_empty(request.send, 202)
        for message in posted.requests:
            await self._answer(message, session, request)

    def _session_of(self, request: HttpRequest) -> HttpSession:
        session = self._sessions.get(named_session(request) or "")
        # Other principals must not even learn that the session exists.
        if session is None or session.principal != request.principal:
            raise Rejected(404, _NONE_SUCH)
        session.touch()
        return session

    async def _answer(self, message: Request, session: HttpSession, request: HttpRequest) -> None:
        stream = session.standing
        if message.method == "initialize" and session.session_id not in self._greeted:
            stream.put(await self._greet(message, session, request))
        elif message.method == "ping":
            stream.put(encode_response(message.id, {}))
        elif session.session_id not in self._greeted:
            detail = f"{message.method[:64]!r} came before initialize: send initialize first"
            stream.put(error_answer(message.id, {"code": INVALID_REQUEST, "message": detail})[0])
        elif session.running(message.id):
            detail = f"a request with id {message.id!r} is already running"
            stream.put(error_answer(message.id, {"code": INVALID_REQUEST, "message": detail})[0])
        else:
            await self._run(message, session, request)

    async def _run(self, message: Request, session: HttpSession, request: HttpRequest) -> None:
        stream = session.standing
        try:
            (admitted,) = session.admit((message,))
        except RpcError as error:
            stream.put(error_answer(message.id, error.error)[0])
            return
        try:
            stream.put(await session.answer(admitted, request, stream))
        finally:
            session.dismiss((admitted,))

    async def _greet(self, message: Request, session: HttpSession, request: HttpRequest) -> bytes:
        try:
            token_map = self._core.maps.choose(message.params, session.token_map)
            session.announce(*check_greeting(message.params), token_map)
        except (RpcError, MapUnknown) as error:
            fault: dict[str, Any] = {"code": INVALID_REQUEST, "message": error.message}
            return error_answer(message.id, error.error if isinstance(error, RpcError) else fault)[0]
        self._greeted.add(session.session_id)
        frame, _ = await self._core.greet(message, session, request.headers, alone=False)
        return frame

    def _end(self, session: HttpSession) -> None:
        if self._sessions.pop(session.session_id, None) is not None:
            self._greeted.discard(session.session_id)
            self._limits.sessions.give_back(session.principal)
            session.end()


class _Opened:
    """A stream behind the event that names the address for messages."""

    def __init__(self, carried: CarriedStream, place: str) -> None:
        self._first = encode_event(place.encode(), kind="endpoint")
        self._carried = carried
        self.ready = carried.ready

    @property
    def over(self) -> bool:
        return self._carried.over and not self._first

    def take(self) -> bytes:
        first, self._first = self._first, b""
        return first + self._carried.take()
