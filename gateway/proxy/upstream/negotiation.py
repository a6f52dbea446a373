"""From an open transport to a session that both sides agree on.

Asks a server for the modern era first (`server/discover`) and falls back to the handshake, because a server that speaks
both gives more in the modern one; a server for whom a handshake-era client stands is asked the other way round, so that
nothing has to be bridged. A server that is silent is asked the other way too, and what it answers first counts: it may
not answer what it does not know, or only be slow to start. Every answer but a usable one is a fall-back or a
`NoCommonEra` that says why. It knows no supervision.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from gateway.errors import UpstreamUnavailable
from gateway.observe.escape import escape_text
from gateway.protocol.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    NEWEST_HANDSHAKE,
    NEWEST_MODERN,
    params_to_modern,
)
from gateway.protocol.messages import UNSUPPORTED_VERSION
from gateway.proxy.transport.interface import LinkLost, NoAnswer, PeerError, Transport
from gateway.proxy.upstream.session import CLIENT_INFO, Session

Era = Literal["modern", "handshake"]
_PROBE_TIME: Final = 5.0
"""Seconds that a server gets for `server/discover` alone; one of the handshake era may not answer what it does not
know."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What to propose."""

    eras: tuple[Era, ...] = ("modern", "handshake")
    """In the order in which they are tried."""
    capabilities: Mapping[str, Any] | None = None
    """What to announce as the client's own, in the handshake era."""


@dataclass(frozen=True, slots=True)
class _Agreed:
    """A version that both know."""

    version: str
    modern: bool
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Refused:
    """One era is not to be spoken with this server, and why."""

    reason: str


_Outcome = _Agreed | _Refused | LinkLost


async def negotiate(session: Session, transport: Transport, terms: Terms) -> None:
    """Agree on a version; the session can be asked afterwards. It waits for an answer as long as its caller does.

    Raises:
        NoCommonEra: no version that both know, or no usable answer.
        LinkLost: the server left.
    """
    outcome = await _first_agreed(transport, terms)
    if isinstance(outcome, LinkLost):
        raise outcome
    if isinstance(outcome, _Refused):
        raise NoCommonEra(outcome.reason, server=session.server)
    transport.speak(outcome.version)
    session.negotiated(transport, outcome.version, modern=outcome.modern, answer=outcome.answer)
    if not outcome.modern:
        await session.notify("notifications/initialized")


class NoCommonEra(UpstreamUnavailable):
    """The server can be reached, and refuses every era that we may speak with it."""


async def _first_agreed(transport: Transport, terms: Terms) -> _Outcome:
    """Ask for one era after the other, and no later than the first is over or silent; the last refusal if all are."""
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
    """Whether nothing is to be learned from another question."""
    if isinstance(outcome, LinkLost):
        # Over HTTP a connection that broke took one question with it, and the next one has a connection of its own.
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
        # Versions are refused with those that would do ("Protocol Version Negotiation"): the newest of ours is tried.
        common = _common(_supported(error))
        if not common:
            raise
        answer = await _ask_modern(transport, common[-1])
    common = _common(offered := answer.get("supportedVersions"))
    if not common:
        return _Refused(f"it speaks MCP {_shown(offered)}; expected {NEWEST_MODERN} among them")
    return _Agreed(common[-1], modern=True, answer=answer)


async def _ask_modern(transport: Transport, version: str) -> dict[str, Any]:
    transport.speak(version)
    params = params_to_modern({}, version=version, client_info=CLIENT_INFO, capabilities={})
    return await transport.request("server/discover", params)


def _common(offered: object) -> list[str]:
    versions = cast("list[object]", offered) if isinstance(offered, list) else []
    return [each for each in MODERN_VERSIONS if each in versions]


def _supported(error: PeerError) -> object:
    """What a server that refuses our version would speak."""
    data: object = error.error.get("data")
    if error.error.get("code") != UNSUPPORTED_VERSION or not isinstance(data, dict):
        return None
    return cast("dict[str, object]", data).get("supported")


async def _initialize(transport: Transport, capabilities: Mapping[str, Any]) -> _Outcome:
    """The handshake (MCP lifecycle, "Initialization")."""
    transport.speak(NEWEST_HANDSHAKE)
    answer = await transport.request(
        "initialize",
        {"protocolVersion": NEWEST_HANDSHAKE, "capabilities": capabilities, "clientInfo": CLIENT_INFO},
    )
    chosen: object = answer.get("protocolVersion")
    if not isinstance(chosen, str) or chosen not in HANDSHAKE_VERSIONS:
        return _Refused(
            f"it speaks MCP {_shown(chosen)}; expected one of {', '.join(HANDSHAKE_VERSIONS)}: "
            "update the server or the gateway"
        )
    return _Agreed(chosen, modern=False, answer=answer)


def _shown(value: object) -> str:
    return escape_text(repr(value), 100)
