"""Streamable HTTP of the handshake era (2025-03-26 to 2025-11-25): POST, GET and DELETE of many sessions.

Turns requests into messages for the session that they name, and what the session sends into JSON (if nothing was pushed
before the answer) or a stream of events. A session belongs to the principal that opened it, and ends by DELETE or when
idle; the number of sessions is bounded. It knows no server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

import anyio

from gateway.deadlines import Deadlines
from gateway.errors import MapUnknown, RpcError
from gateway.observe.logs import get_logger
from gateway.protocol.eras import HANDSHAKE_VERSIONS, VERSION_KEY, meta_of
from gateway.protocol.headers import ERROR_STATUS, VERSION_HEADER, mismatch
from gateway.protocol.lines import encode_message
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_REQUEST, Request
from gateway.serve.auth.identity import is_limited, refusal_over_limit
from gateway.serve.mcp.event_streams import EventLog, stream_name
from gateway.serve.mcp.http import (
    EVENTS,
    RESUME_HEADER,
    SESSION_HEADER,
    ClientWatch,
    HttpReply,
    HttpRequest,
    Rejected,
    accepts,
    read_message_body,
    refuse_late,
    send_empty,
    send_frame,
    write_events,
)
from gateway.serve.mcp.http_session import (
    AdmittedRequest,
    CarriedStream,
    HttpSession,
    PostMessages,
    SessionLimits,
    place_of,
    read_post,
)
from gateway.serve.mcp.methods import McpCore, check_greeting, error_answer
from gateway.shared import Shared, StoreBounds

_MOST_EVENTS: Final = 1024
"""The most events of a stream that are sent again."""
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes kept, for all sessions of all replicas together."""


class LeftEvents:
    """The events that replicas have left behind."""

    def __init__(self, shared: Shared, share: float, ttl: float) -> None:
        """`share`: the part of the bound that one principal may use; `ttl`: seconds for which events are kept."""
        self._shared = shared
        self._bounds = StoreBounds.of(_MOST_BYTES, share, ttl)

    def log(self, owner: str, session_id: str) -> EventLog:
        """The log to which a session writes its events."""
        return EventLog(self._shared, self._bounds, owner, session_id)

    async def after(self, owner: str, session_id: str, stream: int, number: int) -> list[tuple[int, bytes]]:
        """The events of a stream after the one of this number; [] if there are none, or not all are kept."""
        wanted = stream_name(session_id, stream)
        newest = await self._shared.find_alias("event", owner, [wanted], self._bounds, depth=1)
        if not newest:
            return []
        named, _, last = newest[0].id.rpartition("-")
        if named != wanted:
            # An alias is not sealed: whoever can write to the store has made it lead elsewhere.
            return []
        missing = int(last) - number
        if not 0 < missing <= _MOST_EVENTS:
            return []
        found = await self._shared.find("event", owner, newest[0].id, self._bounds, depth=missing)
        return [(number + n + 1, each.value) for n, each in enumerate(found)] if len(found) == missing else []

    async def give(self, request: HttpRequest) -> bool:
        """Answer a client that comes back to a session that is gone with the events that it lacks.

        The answer ends after the last of them. Returns False, and answers nothing, if there are none. Raises Rejected.
        """
        session_id, last = request.headers.get(SESSION_HEADER), request.headers.get(RESUME_HEADER)
        if request.method != "GET" or session_id is None or last is None or (place := place_of(last)) is None:
            return False
        events = await self.after(request.principal.name, session_id, *place)
        if not events:
            return False
        if not accepts(request.headers.get("accept", ""), EVENTS):
            raise Rejected(406, f"the Accept header must name {EVENTS}")
        await write_events(request.send, _GivenEvents(place[0], events))
        return True


class _GivenEvents:
    """The events of a stream to which nothing is added any more, for one response."""

    over = True

    def __init__(self, stream: int, events: Iterable[tuple[int, bytes]]) -> None:
        self.ready = asyncio.Event()
        self._data = b"".join([encode_message(frame, event_id=f"{stream}-{number}") for number, frame in events])

    def take(self) -> bytes:
        """Take all events; nothing when called again."""
        data, self._data = self._data, b""
        return data


_ALLOW: Final = ((b"allow", b"GET, POST, DELETE"),)
_PRIMED_FROM: Final = "2025-11-25"
"""First version whose clients understand an event without data."""
_RETRY_MS: Final = 500
_SLOWEST_LOOK: Final = 30.0
_NONE_SUCH: Final = "there is no such session, or it has ended: send initialize again"


class HttpSessions:
    """All sessions of the handshake era over HTTP."""

    def __init__(
        self,
        core: McpCore,
        limits: SessionLimits,
        dropped: Callable[[], None],
        name: Callable[[str], str],
        left: LeftEvents | None = None,
    ) -> None:
        """Start with no sessions.

        Args:
            dropped: called for every notification that a client loses because it does not read.
            name: gives the id of a new session, from its principal's name.
            left: has the events of sessions whose replica is gone; None: they are lost.
        """
        self._name = name
        self._left = left
        self._core = core
        self._limits = limits
        self._dropped = dropped
        self._deadlines = Deadlines()
        self._sessions: dict[str, HttpSession] = {}
        self._log = get_logger("gateway.serve.mcp")

    def __len__(self) -> int:
        return len(self._sessions)

    def live(self) -> tuple[HttpSession, ...]:
        """All open sessions."""
        return tuple(self._sessions.values())

    async def reap(self) -> None:
        """End idle sessions, until cancelled."""
        pause = min(self._limits.idle / 4, _SLOWEST_LOOK)
        loop = asyncio.get_running_loop()
        while True:
            await anyio.sleep(pause)
            for session in self.live():
                if (since := session.idle_since) is not None and loop.time() - since > self._limits.idle:
                    self._log.info("session ended: it was idle", idle_seconds=round(loop.time() - since))
                    self._end(session)

    @property
    def unfinished(self) -> bool:
        """Whether any session has a running request, or an answer that its client may be about to fetch."""
        return any(session.unfinished for session in self._sessions.values())

    def end_all(self) -> None:
        """End every session."""
        for session in self.live():
            self._end(session)

    def serve(self, request: HttpRequest) -> Awaitable[None]:
        """Answer one HTTP request. Raises Rejected and ClientGone."""
        if request.method == "POST":
            return self._post(request)
        if request.method == "GET":
            return self._get(request)
        if request.method == "DELETE":
            self._end(self._session_of(request))
            return send_empty(request.send, 200)
        raise Rejected(405, f"MCP does not use {request.method}: use POST, GET or DELETE", headers=_ALLOW)

    def _session_of(self, request: HttpRequest) -> HttpSession:
        named = request.headers.get(SESSION_HEADER)
        if named is None:
            raise Rejected(400, f"the {SESSION_HEADER} header is missing: send initialize first")
        session = self._sessions.get(named)
        # Other principals must not even learn that the session exists. Usually the principal is the same object.
        if session is None or (session.principal is not request.principal and session.principal != request.principal):
            raise Rejected(404, _NONE_SUCH)
        session.touch()
        version = request.headers.get(VERSION_HEADER)
        if version is not None and version not in HANDSHAKE_VERSIONS:
            raise Rejected(
                400, f"unknown version {version!r:.60} in {VERSION_HEADER}: this session uses {session.version}"
            )
        return session

    async def _post(self, request: HttpRequest) -> None:
        session = self._session_of(request) if SESSION_HEADER in request.headers else None
        body = await read_message_body(request, self._limits.body_bytes)
        if session is not None and session.session_id not in self._sessions:
            # It ended while the body came: nobody would end what is opened for it now.
            raise Rejected(404, _NONE_SUCH)
        posted = read_post(body, "" if session is None else session.version)
        if (fault := posted.fault) is not None:
            frame, _ = error_answer(fault.id, {"code": fault.code, "message": fault.detail})
            await send_frame(request.send, 400, frame)
            return
        if posted.requests or session is None:
            refuse_late(request)
            if (full := refusal_over_limit(request.scope)) is not None:
                await full(request.scope, request.receive, request.send)
                return
        if len(posted.requests) > 1 and is_limited(request.scope):
            raise Rejected(400, "the requests of this credential are limited: send the requests of a batch one by one")
        if session is None:
            await self._post_outside(posted, request)
            return
        for message in posted.one_way:
            session.take(message)
        if posted.requests:
            await self._run(posted, request, session)
        else:
            await send_empty(request.send, 202)

    async def _post_outside(self, posted: PostMessages, request: HttpRequest) -> None:
        """A POST that names no session: `initialize`, or a mistake."""
        if not posted.requests:
            raise Rejected(400, f"the {SESSION_HEADER} header is missing: send initialize first")
        (message,) = posted.requests
        if message.method == "initialize":
            await self._open(message, request)
            return
        if VERSION_KEY in meta_of(message.params):
            error = mismatch(f"the {VERSION_HEADER} header is missing: it must repeat {VERSION_KEY!r} of the body")
        else:
            detail = f"{message.method[:64]!r} came before initialize: send initialize first, then {SESSION_HEADER}"
            error = {"code": INVALID_REQUEST, "message": detail}
        frame, _ = error_answer(message.id, error)
        await send_frame(request.send, 400, frame)

    async def _open(self, message: Request, request: HttpRequest) -> None:
        try:
            session = self._make(message.params, request)
        except (RpcError, MapUnknown) as error:
            fault: dict[str, Any] = (
                error.error if isinstance(error, RpcError) else {"code": INVALID_REQUEST, "message": error.message}
            )
            frame, code = error_answer(message.id, fault)
            await send_frame(request.send, ERROR_STATUS.get(code, 200), frame)
            return
        if (over := self._limits.sessions.take(session.principal)) is not None:
            raise Rejected(429 if over.limit == "share" else 503, over.message, headers=((b"retry-after", b"5"),))
        self._sessions[session.session_id] = session
        code = INTERNAL_ERROR
        try:
            frame, code = await self._core.greet(message, session, request.headers, alone=False)
            named = () if code else ((SESSION_HEADER.encode(), session.session_id.encode()),)
            await send_frame(request.send, 200, frame, named)
        finally:
            if code:
                self._end(session)

    def _make(self, params: dict[str, Any], request: HttpRequest) -> HttpSession:
        version, capabilities = check_greeting(params)
        token_map = self._core.maps.choose(params, request.token_map or self._core.session_map)
        session_id = self._name(request.principal.name)
        return HttpSession(
            self._core,
            session_id=session_id,
            version=version,
            capabilities=capabilities,
            principal=request.principal,
            token_map=token_map,
            dropped=self._dropped,
            log=None if self._left is None else self._left.log(request.principal.name, session_id),
        )

    async def _run(self, posted: PostMessages, request: HttpRequest, session: HttpSession) -> None:
        try:
            admitted = session.admit(posted.requests)
        except RpcError as error:
            frame, _ = error_answer(posted.requests[0].id, error.error)
            await send_frame(request.send, 200, frame)
            return
        try:
            with HttpReply(request, partial(self._carry, session), self._deadlines) as reply:
                if posted.is_batch or self._closes_early(session):
                    # Answered in JSON, a batch would need a list; and a client whose connection breaks before the first
                    # event could not come back.
                    reply.begin()
                if posted.is_batch:
                    await _answer_each(admitted, session, request, reply)
                else:
                    await reply.finish(await session.answer(admitted[0], request, reply))
        finally:
            session.dismiss(admitted)

    def _carry(self, session: HttpSession) -> CarriedStream:
        carried = CarriedStream(session, session.open_stream())
        self._close_later(session, carried)
        return carried

    def _closes_early(self, session: HttpSession) -> bool:
        """Whether this session's streams are closed early: if that is configured and the client understands it."""
        return self._limits.close_after is not None and session.version >= _PRIMED_FROM

    def _close_later(self, session: HttpSession, carried: CarriedStream) -> None:
        if self._limits.close_after is not None and self._closes_early(session):
            carried.close_after(self._limits.close_after, retry_ms=_RETRY_MS)

    async def _get(self, request: HttpRequest) -> None:
        is_here = request.headers.get(SESSION_HEADER) in self._sessions
        if not is_here and self._left is not None and await self._left.give(request):
            return
        session = self._session_of(request)
        if not accepts(request.headers.get("accept", ""), EVENTS):
            raise Rejected(406, f"the Accept header must name {EVENTS}")
        stream, after = session.standing, None
        if (last := request.headers.get(RESUME_HEADER)) is not None:
            found = session.find(last)
            if found is None:
                raise Rejected(400, "the event named by Last-Event-ID is no longer kept: send the request again")
            stream, after = found
        carried = CarriedStream(session, stream, after)
        if stream is session.standing:
            session.listening()
        else:
            self._close_later(session, carried)
        watch = GetWatch(request, carried, self._deadlines)
        watch.look()
        try:
            await write_events(request.send, carried)
        finally:
            watch.stop()
            carried.detach()

    def _end(self, session: HttpSession) -> None:
        if self._sessions.pop(session.session_id, None) is not None:
            self._limits.sessions.give_back(session.principal)
            session.end()


class GetWatch(ClientWatch):
    """Watches a GET request, and stops writing once its client has left."""

    __slots__ = ("_carried",)

    def __init__(self, request: HttpRequest, carried: CarriedStream, deadlines: Deadlines) -> None:
        super().__init__(request.receive, deadlines)
        self._carried = carried

    def left(self) -> None:
        """End this response; the session keeps the stream with all that is in it."""
        self._carried.leave()


async def _answer_each(
    admitted: Sequence[AdmittedRequest], session: HttpSession, request: HttpRequest, reply: HttpReply
) -> None:
    """Run the requests of a batch, and put each answer into the reply as it comes."""

    async def answer(each: AdmittedRequest) -> None:
        reply.put(await session.answer(each, request, reply))

    await asyncio.gather(*map(answer, admitted))
    await reply.finish(None)
