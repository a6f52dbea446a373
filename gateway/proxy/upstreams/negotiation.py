"""From an open wire to a session that both sides agree on.

Asks a server for the modern era first (`server/discover`) and falls back to the handshake, because a server that speaks
both gives more in the modern one; a server for whom a handshake-era client stands is asked the other way round, so that
nothing has to be bridged. Every answer but a usable one is a fall-back or a `NoCommonEra` that says why. It
knows no supervision. `pool.py` stands above.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import anyio

from gateway.errors import UpstreamUnavailable
from gateway.observe.escape import escape_text
from gateway.proxy.upstreams.session import CLIENT_INFO, Session
from gateway.proxy.wires.wire import NoAnswer, PeerError, Wire
from gateway.rpc.eras import (
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    NEWEST_HANDSHAKE,
    NEWEST_MODERN,
    params_to_modern,
)

Era = Literal["modern", "handshake"]
_PROBE_TIME: Final = 5.0
"""Seconds that a server gets for `server/discover`; one of the handshake era may not answer what it does not know."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What to propose."""

    eras: tuple[Era, ...] = ("modern", "handshake")
    """In the order in which they are tried."""
    capabilities: Mapping[str, Any] | None = None
    """What to announce as the client's own, in the handshake era."""


async def negotiate(session: Session, wire: Wire, terms: Terms) -> None:
    """Agree on a version; the session can be asked afterwards.

    Raises:
        NoCommonEra: no version that both know, or no usable answer.
        LinkLost: the server left.
    """
    refusals: list[str] = []
    for era in terms.eras:
        try:
            if era == "modern":
                with anyio.fail_after(_PROBE_TIME):
                    await _discover(session, wire)
            else:
                await _initialize(session, wire, terms.capabilities or {})
        except PeerError as error:
            question = "server/discover" if era == "modern" else "initialize"
            refusals.append(f"it refused {question}: {escape_text(str(error), 200)}")
        except NoAnswer as error:
            refusals.append(str(error))
        except TimeoutError:
            refusals.append(f"it does not answer server/discover within {_PROBE_TIME:g} s")
        except _Mismatch as error:
            refusals.append(str(error))
        else:
            return
    raise NoCommonEra(refusals[-1], server=session.server)


class NoCommonEra(UpstreamUnavailable):
    """The server can be reached, and refuses every era that we may speak with it."""


class _Mismatch(Exception):
    """The server answered, and we have no version in common."""


async def _discover(session: Session, wire: Wire) -> None:
    wire.speak(NEWEST_MODERN)
    params = params_to_modern({}, version=NEWEST_MODERN, client_info=CLIENT_INFO, capabilities={})
    answer = await wire.request("server/discover", params)
    offered: object = answer.get("supportedVersions")
    versions = cast(list[object], offered) if isinstance(offered, list) else []
    common = [each for each in MODERN_VERSIONS if each in versions]
    if not common:
        raise _Mismatch(f"it speaks MCP {_shown(versions)}; expected {NEWEST_MODERN} among them")
    session.negotiated(wire, common[-1], modern=True, answer=answer)


async def _initialize(session: Session, wire: Wire, capabilities: Mapping[str, Any]) -> None:
    """The handshake (MCP lifecycle, "Initialization")."""
    wire.speak(NEWEST_HANDSHAKE)
    answer = await wire.request(
        "initialize",
        {"protocolVersion": NEWEST_HANDSHAKE, "capabilities": capabilities, "clientInfo": CLIENT_INFO},
    )
    chosen: object = answer.get("protocolVersion")
    if not isinstance(chosen, str) or chosen not in HANDSHAKE_VERSIONS:
        raise _Mismatch(
            f"it speaks MCP {_shown(chosen)}; expected one of {', '.join(HANDSHAKE_VERSIONS)}: "
            "update the server or the gateway"
        )
    wire.speak(chosen)
    session.negotiated(wire, chosen, modern=False, answer=answer)
    await session.notify("notifications/initialized")


def _shown(value: object) -> str:
    return escape_text(repr(value), 100)
