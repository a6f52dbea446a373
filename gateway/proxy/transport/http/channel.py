"""The way to one MCP endpoint: requests out with the headers that each of them needs, heads of answers in.

Adds the session's id, the protocol version and our credentials, repeats a request with fresh credentials if they were
refused, follows redirects within the server's own origin, and notices when the server has forgotten the session, which
fails everything that is running. It reads no body.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from types import MappingProxyType
from typing import Any, Final

import anyio

from gateway.config.address import Address
from gateway.http1.connection import SEPARATOR, Connection, header_lines
from gateway.protocol.eras import MODERN_VERSIONS, NEWEST_HANDSHAKE
from gateway.protocol.headers import VERSION_HEADER
from gateway.proxy.transport.http.client import Authorizer, HttpClient
from gateway.proxy.transport.http.http_answers import (
    EVENTS,
    JSON,
    common_headers,
    media_type,
    redirect_words,
    status_words,
)
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, SessionForgotten

# Balancers in front of servers keep a session at one replica by cookies. Path, domain and age are not looked at: a jar
# belongs to one address and one session, and ends with it (RFC 6265 asks for no more than what its user needs).

_MOST: Final = 16
_LONGEST: Final = 4096
"""Characters of a name and its value together, as browsers have it."""


class CookieJar:
    """The cookies that a server has set."""

    def __init__(self) -> None:
        self._cookies: dict[str, str] = {}
        self.lines = b""
        """The header line that sends them; empty: there are none."""

    def take(self, set_cookie: str) -> None:
        """Keep the cookies that an answer sets, except those that it ends."""
        for each in set_cookie.split(SEPARATOR.decode()):
            pair, *attributes = each.split(";")
            name, is_pair, value = (part.strip() for part in pair.partition("="))
            if not is_pair or not name or len(pair) > _LONGEST or not pair.isprintable() or not pair.isascii():
                continue
            self._cookies.pop(name, None)
            if not any(attribute.strip().lower() == "max-age=0" for attribute in attributes):
                self._cookies[name] = value
            if len(self._cookies) > _MOST:
                del self._cookies[next(iter(self._cookies))]
        told = "; ".join(f"{name}={value}" for name, value in self._cookies.items())
        self.lines = header_lines({"cookie": told}) if told else b""


SESSION_HEADER: Final = "mcp-session-id"
_OURS: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "last-event-id", "transfer-encoding"}
    | {SESSION_HEADER, VERSION_HEADER}
)
"""Headers that the configuration can't set: they belong to the transport."""
_POST_LINES: Final = header_lines({"accept": f"{JSON}, {EVENTS}", "content-type": JSON})
_GET_LINES: Final = header_lines({"accept": EVENTS})
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_GOODBYE_TIME: Final = 2.0
_LAST_WORDS: Final = 2.0
"""Seconds to wait for the head of an answer to a request in a session that the server has forgotten."""
_NEW_NAME: Final = 15.0
"""Seconds to wait for the head of an answer that may give the session the name under which the server knows it now."""
_OVERTAKEN: Final = 16
"""Times that a request is sent again whose session got another name from the answers to others."""
_REDIRECTS: Final = 3
_REPEATED: Final = frozenset({301, 302, 307, 308})
"""Redirects after which the same message is sent to the new address. The first two often come from a server that wants
a slash at the end, or none; clients that then send a GET lose the message."""
_ID_BOUND: Final = 4096


class Channel:
    """One endpoint, and our session there if there is one."""

    def __init__(
        self, address: Address, headers: Mapping[str, str], client: HttpClient, authorizer: Authorizer | None
    ) -> None:
        """`headers`: what the configuration adds to every request."""
        self.closed = asyncio.Event()
        """Set when nothing more can be sent."""
        self.modern = False
        self.session = ""
        """The id that the server gave our session (handshake era); empty: none."""
        self.address = address
        self._client = client
        self._authorizer = authorizer
        self._base = _base_lines(address, headers)
        self._cookies = None if any(name.lower() == "cookie" for name in headers) else CookieJar()
        """None: the configuration names the cookies."""
        self.has_stream = False
        """Whether the server has ever opened an event stream of its own."""
        self.stream_asked = asyncio.Event()
        """Set when the server has been asked for one, and has opened it or not."""
        self.version = ""
        """Protocol version; empty: none was negotiated yet."""
        self._lines = self._base
        self._busy: set[Connection] = set()
        self._asked: set[Connection] = set()
        """Connections whose answer has not begun."""
        self._answered = asyncio.Event()
        self._renames = False
        """Whether the server names the session anew with its answers."""
        self._unheard = False
        """Whether an answer that nobody waited for may have named it so."""
        self._sent = _NOTHING
        """The credentials of the last request."""
        self._lost = LinkLost("", sent=False)

    def beside(self, address: Address) -> "Channel":
        """The way to another address of the same server, with the same headers and credentials."""
        made = Channel(address, {}, self._client, self._authorizer)
        made._base = self._base
        made._cookies = self._cookies
        made.use_version(self.version)
        return made

    def use_version(self, version: str) -> None:
        """Use this protocol version from now on."""
        self.version = version
        self.modern = version in MODERN_VERSIONS
        self._compose()

    def begin_session(self, connection: Connection) -> None:
        """Store the session's id from the answer to `initialize`. Raises `NoAnswer`: it is too long."""
        given = connection.header(SESSION_HEADER)
        if len(given) > _ID_BOUND:
            raise NoAnswer(f"its session id of {len(given)} characters is too long: expected at most {_ID_BOUND}")
        self.session = given
        self._unheard = False
        self._compose()

    async def post(self, body: bytes, lines: bytes = b"", *, opening: bool = False) -> Connection:
        """Send a message. Return the connection, with the head of the answer read; the caller must release it.

        Args:
            lines: additional header lines for this message.
            opening: whether the message asks for a session; it is then sent outside any.

        Raises:
            LinkLost, NoAnswer: see `Transport.request`.
        """
        # Judged now and not when the answer comes: a request sent before a session began says nothing about it.
        in_session, named = self.in_session and not opening, self.session
        connection = await self._post(body, lines, opening=opening)
        for _ in range(_OVERTAKEN):
            if not (in_session and _refuses(connection, named) and await self._has_renamed(named)):
                break
            # Under the old name nothing was begun.
            self.release(connection, drain=True)
            named = self.session
            connection = await self._post(body, lines)
        is_lost = self._renames and self._unheard and _refuses(connection, named)
        if in_session and (connection.status == 404 or is_lost):
            self.release(connection)
            raise self.forget()
        if in_session and connection.header(SESSION_HEADER) not in ("", self.session):
            # Some servers name the session anew with each answer.
            self._renames = True
            self.begin_session(connection)
        return connection

    async def _has_renamed(self, named: str) -> bool:
        """Whether the session has another name now, or gets one by an answer that is about to come."""
        with anyio.move_on_after(_NEW_NAME):
            while self._renames and self._asked and self.session == named:
                self._answered.clear()
                await self._answered.wait()
        return self.session not in ("", named)

    async def _post(self, body: bytes, lines: bytes, *, opening: bool = False) -> Connection:
        """Like `post`, with whatever answer comes from where redirects lead."""
        lines = (self._base if opening else self._lines) + _POST_LINES + lines
        connection = await self._request("POST", lines, body)
        for _ in range(_REDIRECTS):
            if connection.status not in _REPEATED:
                break
            self._redirect(connection)
            connection = await self._request("POST", lines, body)
        return connection

    async def open_stream(self, last_id: str | None) -> Connection | None:
        """Open the event stream that continues after event `last_id`, or (None) the one for what belongs to no request.

        Returns None if the server offers none.

        Raises:
            LinkLost, NoAnswer: it can't be opened now.
        """
        lines = header_lines({"last-event-id": last_id}) if last_id is not None else b""
        try:
            connection = await self._request("GET", self._lines + _GET_LINES + lines, b"")
            self.has_stream = self.has_stream or _is_stream(connection)
        finally:
            self.stream_asked.set()
        status = connection.status
        if _is_stream(connection):
            return connection
        self.release(connection, drain=True)
        if status == 404 and self.in_session and self.has_stream:
            # From a server that never had a stream, it means that it has none.
            raise self.forget()
        if status in (401, 403, 408, 425, 429) or (status >= 500 and status != 501):
            raise NoAnswer(status_words(status))
        return None

    def release(self, connection: Connection, *, drain: bool = False) -> None:
        """Give a connection back. `drain`: the rest of its answer is short and can be thrown away."""
        self._busy.discard(connection)
        self._client.give(connection, drain=drain)

    def forget(self) -> SessionForgotten:
        """The server has forgotten our session: close. Requests in flight still learn whether the server began them."""
        error = SessionForgotten("it has forgotten our session")
        if not self.closed.is_set():
            self._lost = error
            self.closed.set()
        return error

    async def lose(self, error: LinkLost) -> None:
        """Close, and fail everything that is running. Later requests fail with `error`, or with SessionForgotten if the
        session was forgotten; in that case, requests in flight first get a moment for their answers to begin."""
        try:
            if not self.closed.is_set():
                self._lost = error
                return
            with anyio.move_on_after(_LAST_WORDS):
                while self._asked:
                    self._answered.clear()
                    await self._answered.wait()
        finally:
            for connection in tuple(self._busy):
                connection.fail(str(self._lost))
            self.closed.set()

    async def end_session(self) -> None:
        """End the session at the server, if there is one (Streamable HTTP, "Session Management"). Gives up soon.

        Even in the modern era there may be one: from an `initialize` whose answer came too late to be used.
        """
        session, self.session = self.session, ""
        if not session or isinstance(self._lost, SessionForgotten):
            return
        spoken = NEWEST_HANDSHAKE if self.modern else self.version
        lines = self._base + header_lines({VERSION_HEADER: spoken}) + _session_line(session)
        self._compose()
        with anyio.move_on_after(_GOODBYE_TIME):
            try:
                connection = await self._request("DELETE", lines, b"", last=True)
            except (LinkLost, NoAnswer):
                return
            self.release(connection, drain=True)

    @property
    def in_session(self) -> bool:
        """Whether messages are now sent in a session."""
        return bool(self.session) and not self.modern

    def _compose(self) -> None:
        headers = {VERSION_HEADER: self.version} if self.version else {}
        session = _session_line(self.session) if self.in_session else b""
        self._lines = self._base + header_lines(headers) + session

    async def _request(self, method: str, lines: bytes, body: bytes, *, last: bool = False) -> Connection:
        """Send; and send again if the server refused the credentials and there are better ones now. `last`: it ends the
        session, which the last credentials may still do if there are no others."""
        if last:
            sent = await self._last_credentials()
        else:
            sent = _NOTHING if self._authorizer is None else await self._authorizer.headers()
        self._sent = sent
        connection = await self._send(method, lines + header_lines(sent) if sent else lines, body, last=last)
        if self._authorizer is None or connection.status not in (401, 403):
            return connection
        try:
            better = await self._authorizer.refused(connection.status, connection.header("www-authenticate"), sent)
        except BaseException:
            self.release(connection)
            raise
        if not better:
            return connection
        self.release(connection, drain=True)
        return await self._send(method, lines + header_lines(await self._credentials()), body, last=last)

    async def _last_credentials(self) -> Mapping[str, str]:
        try:
            return await self._credentials() or self._sent
        except (LinkLost, NoAnswer):
            return self._sent

    async def _credentials(self) -> Mapping[str, str]:
        return _NOTHING if self._authorizer is None else await self._authorizer.headers()

    async def _send(self, method: str, lines: bytes, body: bytes, *, last: bool = False) -> Connection:
        self._check_open(last)
        connection = await self._client.take(self.address.origin)
        self._busy.add(connection)
        try:
            self._check_open(last)
            await self._head(connection, method, lines + self._cookies.lines if self._cookies else lines, body)
            self._read_head(connection)
        except BaseException:
            self.release(connection)
            raise
        return connection

    def _read_head(self, connection: Connection) -> None:
        if b"set-cookie" in connection.headers and self._cookies is not None:
            self._cookies.take(connection.header("set-cookie"))
        if b"content-encoding" in connection.headers:
            connection.decode()

    async def _head(self, connection: Connection, method: str, lines: bytes, body: bytes) -> None:
        self._asked.add(connection)
        try:
            connection.send(method, self.address.path, lines, body)
            await connection.head()
        except BaseException:
            self._unheard = True
            raise
        finally:
            self._asked.discard(connection)
            self._answered.set()

    def _check_open(self, last: bool) -> None:
        if self.closed.is_set() and not last:
            if isinstance(self._lost, SessionForgotten):
                raise SessionForgotten(str(self._lost))
            raise LinkLost(str(self._lost), sent=False)

    def _redirect(self, connection: Connection) -> None:
        """Use the redirect's target from now on, if it is in the same origin; our credentials must go nowhere else.
        Releases the connection."""
        location = connection.header("location")
        try:
            target = self.address.joined(location) if location else None
        except ValueError:
            target = None
        self.release(connection, drain=True)
        if target is None or target.origin != self.address.origin:
            where = f"to {target.origin}" if target is not None else "without saying where"
            raise NoAnswer(redirect_words(connection.status, where))
        self.address = target


def _is_stream(connection: Connection) -> bool:
    return connection.status == 200 and media_type(connection.header("content-type")) == EVENTS


def _session_line(session: str) -> bytes:
    """The session's id as it came: some servers use other bytes than ASCII."""
    return b"%b: %b\r\n" % (SESSION_HEADER.encode(), session.encode("latin-1"))


def _refuses(connection: Connection, named: str) -> bool:
    """Whether a server may not know the session under this name. One that names it anew has answered in it."""
    return connection.status == 400 and connection.header(SESSION_HEADER) in ("", named)


def _base_lines(address: Address, headers: Mapping[str, str]) -> bytes:
    configured = {name.lower(): value for name, value in headers.items() if name.lower() not in _OURS}
    return header_lines(common_headers(address) | configured)


# A server that is slow to start may be asked for both eras at the same time, and only one answer counts. The other must
# not leave a session at the server: the answer to its `initialize` is awaited for a while, and the session that it
# opened is deleted.

_LATE: Final = 30.0
"""Seconds to wait for the answer to an `initialize` that nobody wants any more."""


async def open_session(
    asking: Coroutine[Any, Any, dict[str, Any]], channel: Channel, keep: Callable[[asyncio.Future[Any]], None]
) -> dict[str, Any]:
    """Return the result of `asking`, which begins a session on the channel. Raises what it raises. `keep`: takes tasks
    that go on in the background, at most as long as the transport lives."""
    asked = asyncio.ensure_future(asking)
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        keep(asked)
        keep(asyncio.ensure_future(_end_unwanted(asked, channel)))
        raise


async def _end_unwanted(asked: asyncio.Future[dict[str, Any]], channel: Channel) -> None:
    try:
        await asyncio.wait([asked], timeout=_LATE)
    finally:
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
    await channel.end_session()
