"""Turns an open transport into a session that both sides agree on.

Tries the modern era first (`server/discover`) and falls back to the handshake, because a server that speaks both offers
more in the modern one. If the session belongs to a handshake-era client, the order is reversed, so that nothing has to
be bridged. If a server is silent, the other era is tried as well, and the first answer counts: some servers do not
answer unknown requests, others are only slow to start. If an era is refused, the other one is tried; if both are,
`NoCommonEra` says why. It knows no supervision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from gateway.errors import UpstreamUnavailable
from gateway.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.protocol.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    NEWEST_HANDSHAKE,
    NEWEST_MODERN,
    SERVER_VERSIONS,
    params_to_modern,
)
from gateway.protocol.messages import UNSUPPORTED_VERSION
from gateway.proxy.caller import NOBODY, NOBODY_MODERN
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, Transport
from gateway.proxy.upstream.session.session import CLIENT_INFO, LISTED, ListKind, Session, declares_lists

Era = Literal["modern", "handshake"]
_PROBE_TIME: Final = 5.0
"""Seconds a server gets for `server/discover` before the handshake is tried too: a handshake-era server may not
answer unknown requests."""
_LISTS_TIME: Final = 30.0
"""Seconds for the lists of a server that declares none: without them it has nothing that clients could use."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What to propose."""

    eras: tuple[Era, ...] = ("modern", "handshake")
    """The eras, in the order in which they are tried."""
    capabilities: Mapping[str, Any] | None = None
    """The client capabilities to announce in the handshake era."""


@dataclass(frozen=True, slots=True)
class _Agreed:
    """A version that both sides know."""

    version: str
    modern: bool
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why one era can't be used with this server."""

    reason: str


_Outcome = _Agreed | _Refused | LinkLost


async def negotiate(session: Session, transport: Transport, terms: Terms) -> None:
    """Agree on a version, after which the session takes requests. Has no time limit of its own.

    Raises:
        NoCommonEra: there is no version that both sides know, or no usable answer.
        LinkLost: the connection is over.
    """
    outcome = await _first_agreed(transport, terms)
    if isinstance(outcome, LinkLost):
        raise outcome
    if isinstance(outcome, _Refused):
        raise NoCommonEra(outcome.reason, server=session.server)
    transport.use_version(outcome.version)
    session.negotiated(transport, outcome.version, modern=outcome.modern, answer=outcome.answer)
    if not outcome.modern:
        await session.notify("notifications/initialized")
    if not declares_lists(session.capabilities):
        await _try_lists(session)


async def _try_lists(session: Session) -> None:
    """Ask a server that declares nothing for each of its lists, once: official clients show what it then lists."""

    async def ask(kind: ListKind) -> None:
        try:
            answer = await session.request(f"{kind}/list", {}, NOBODY_MODERN if session.modern else NOBODY)
        except (PeerError, NoAnswer, LinkLost):
            return
        if isinstance(answer.get(kind), list):
            session.discovered(kind)

    with anyio.move_on_after(_LISTS_TIME):
        async with anyio.create_task_group() as tasks:
            for kind in LISTED:
                tasks.start_soon(ask, kind)
    get_logger("gateway.proxy").warning(
        "upstream declares no tools, prompts or resources in its capabilities; it was asked for them",
        server=session.server,
        found=[kind for kind in LISTED if kind in session.capabilities],
    )


class NoCommonEra(UpstreamUnavailable):
    """The server can be reached, but refuses every era that we may use with it."""


async def _first_agreed(transport: Transport, terms: Terms) -> _Outcome:
    """Try one era after the other, the next when the first is refused or silent. Return what settles it, else the
    last refusal."""
    send, receive = anyio.create_memory_object_stream[_Outcome](len(terms.eras))
    left, waiting = list(terms.eras), 0
    outcome: _Outcome = _Refused("nothing was proposed to it")
    with send, receive:
        async with anyio.create_task_group() as tasks:
            while left or waiting:
                wait = None
                if left:
                    era = left.pop(0)
                    tasks.start_soon(_ask, era, transport, terms, send)
                    waiting += 1
                    wait = _PROBE_TIME if left and era == "modern" else None
                with anyio.move_on_after(wait):
                    outcome = await receive.receive()
                    waiting -= 1
                    if _settles(outcome, transport):
                        break
            tasks.cancel_scope.cancel()
    return outcome


def _settles(outcome: _Outcome, transport: Transport) -> bool:
    """Whether trying another era would be of no use."""
    if isinstance(outcome, LinkLost):
        # Over HTTP a broken connection failed only its own request; the next request has a connection of its own.
        return transport.closed.is_set() or not outcome.sent
    return isinstance(outcome, _Agreed)


async def _ask(era: Era, transport: Transport, terms: Terms, told: MemoryObjectSendStream[_Outcome]) -> None:
    try:
        outcome = await (_discover(transport) if era == "modern" else _initialize(transport, terms.capabilities or {}))
    except PeerError as error:
        question = "server/discover" if era == "modern" else "initialize"
        outcome = _Refused(f"it refused {question}: {escape_text(str(error), 200)}")
    except NoAnswer as error:
        outcome = _Refused(str(error))
    except LinkLost as error:
        outcome = error
    told.send_nowait(outcome)


async def _discover(transport: Transport) -> _Outcome:
    try:
        answer = await _ask_modern(transport, NEWEST_MODERN)
    except PeerError as error:
        # A refusal names the supported versions ("Protocol Version Negotiation"): try the newest one that we know.
        common = _common(_supported(error))
        if not common:
            raise
        answer = await _ask_modern(transport, common[-1])
    common = _common(offered := answer.get("supportedVersions"))
    if not common:
        return _Refused(f"it speaks MCP {_shown(offered)}; expected {NEWEST_MODERN} among them")
    return _Agreed(common[-1], modern=True, answer=answer)


async def _ask_modern(transport: Transport, version: str) -> dict[str, Any]:
    transport.use_version(version)
    params = params_to_modern({}, version=version, client_info=CLIENT_INFO, capabilities={})
    return await transport.request("server/discover", params)


def _common(offered: object) -> list[str]:
    versions = cast("list[object]", offered) if isinstance(offered, list) else []
    return [each for each in MODERN_VERSIONS if each in versions]


def _supported(error: PeerError) -> object:
    """The versions that a server names when it refuses ours; None: it names none."""
    data: object = error.error.get("data")
    if error.error.get("code") != UNSUPPORTED_VERSION or not isinstance(data, dict):
        return None
    return cast("dict[str, object]", data).get("supported")


async def _initialize(transport: Transport, capabilities: Mapping[str, Any]) -> _Outcome:
    """The handshake (MCP lifecycle, "Initialization")."""
    transport.use_version(NEWEST_HANDSHAKE)
    answer = await transport.request(
        "initialize",
        {"protocolVersion": NEWEST_HANDSHAKE, "capabilities": capabilities, "clientInfo": CLIENT_INFO},
    )
    chosen: object = answer.get("protocolVersion")
    if not isinstance(chosen, str) or chosen not in SERVER_VERSIONS:
        return _Refused(
            f"it speaks MCP {_shown(chosen)}; expected one of {', '.join(HANDSHAKE_VERSIONS)}: "
            "update the server or the gateway"
        )
    return _Agreed(chosen, modern=False, answer=answer)


def _shown(value: object) -> str:
    return escape_text(repr(value), 100)
