"""Which version a session uses, by what its server answers, refuses or leaves unanswered."""

import asyncio
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError
from gateway.proxy.upstream.session.negotiation import NoCommonEra, Terms, negotiate
from gateway.proxy.upstream.session.session import Session

pytestmark = pytest.mark.anyio
BOTH = Terms()
HANDSHAKE = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
NO_SUCH = PeerError({"code": -32601, "message": "no such method"})


def speaks(*versions: str) -> PeerError:
    return PeerError({"code": -32022, "message": "no", "data": {"supported": list(versions)}})


class Server:
    """A transport whose server does as is written down, a list of answers for each method."""

    first_number = 0
    unread = ""

    def __init__(self, **answers: list[Any]) -> None:
        self.closed = asyncio.Event()
        self.asked: list[str] = []
        self.versions: list[str] = []
        self.told: list[str] = []
        self._answers = answers

    def use_version(self, version: str) -> None:
        self.versions.append(version)

    async def request(self, method: str, params: Any, *_: Any, **__: Any) -> Any:
        self.asked.append(method)
        self.params = params
        answers = self._answers.get(method.partition("/")[2] or method, [NO_SUCH])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if answer is None:
            await anyio.sleep_forever()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def notify(self, method: str, params: Any = None) -> None:
        self.told.append(method)


async def agreed(server: Server, terms: Terms = BOTH) -> Session:
    session = Session("up", print, on_list_changed=print, on_updated=print)
    with anyio.fail_after(30):
        await negotiate(session, server, terms)
    return session


async def test_modern_era_is_tried_first_and_needs_no_handshake() -> None:
    server = Server(discover=[MODERN], initialize=[HANDSHAKE])
    session = await agreed(server)

    assert (session.version, session.modern, server.asked, server.told) == ("2026-07-28", True, ["server/discover"], [])
    assert server.versions[-1] == "2026-07-28"


@pytest.mark.parametrize("refusal", [NO_SUCH, NoAnswer("it closed the stream"), {"supportedVersions": ["2099-01-01"]}])
async def test_server_that_refuses_one_era_is_asked_for_the_other(refusal: object) -> None:
    server = Server(discover=[refusal], initialize=[HANDSHAKE])
    session = await agreed(server)

    assert (session.version, session.modern) == ("2025-06-18", False)
    assert (server.asked, server.told) == (["server/discover", "initialize"], ["notifications/initialized"])
    assert server.versions[-1] == "2025-06-18"


@pytest.mark.parametrize(("announced", "told"), [({"roots": {}}, {"roots": {}}), (None, {})])
async def test_server_is_told_at_the_handshake_what_the_client_can_do(announced: Any, told: Any) -> None:
    server = Server(initialize=[HANDSHAKE])
    await agreed(server, Terms(("handshake",), announced))

    assert server.params["capabilities"] == told


async def test_session_of_a_client_of_the_handshake_era_asks_for_that_alone() -> None:
    server = Server(discover=[MODERN], initialize=[HANDSHAKE])

    assert not (await agreed(server, Terms(("handshake",)))).modern
    assert server.asked == ["initialize"]


@pytest.mark.parametrize("silent", ["discover", "initialize"])
async def test_server_that_is_silent_to_one_era_is_asked_for_the_other_and_the_first_answer_counts(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._PROBE_TIME", 0.0)
    answers = {"discover": [MODERN], "initialize": [HANDSHAKE]}
    server = Server(**{**answers, silent: [None]})

    assert (await agreed(server)).modern == (silent == "initialize")


@pytest.mark.parametrize(
    ("seconds", "lists", "found"), [(20.0, [{"tools": []}, NO_SUCH], ["tools"]), (0.0, [None], [])]
)
async def test_server_that_declares_nothing_may_take_longer_to_list_but_not_for_ever(
    seconds: float, lists: list[Any], found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._PROBE_TIME", 0.0)
    monkeypatch.setattr("gateway.proxy.upstream.session.negotiation._LISTS_TIME", seconds)
    nothing = {"protocolVersion": "2025-06-18", "capabilities": {}}
    server = Server(initialize=[nothing], list=lists)

    assert list((await agreed(server, Terms(("handshake",)))).capabilities) == found


async def test_refusal_that_names_a_version_of_ours_is_followed_by_that() -> None:
    server = Server(discover=[speaks("2099-01-01", "2026-07-28"), MODERN])

    assert (await agreed(server)).modern
    assert server.asked == ["server/discover"] * 2


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ({}, "it refused initialize: no such method"),
        ({"discover": [speaks("2099-01-01")]}, "it refused initialize"),
        ({"initialize": [{"protocolVersion": "1999-01-01"}]}, "it speaks MCP '1999-01-01'; expected one of 2024-11-05"),
        ({"initialize": [{"protocolVersion": ["2025-06-18"]}]}, "it speaks MCP"),
        ({"initialize": [NoAnswer("it answered 500")]}, "it answered 500"),
    ],
)
async def test_server_with_no_version_of_ours_is_refused_with_the_reason(answers: Any, why: str) -> None:
    with pytest.raises(NoCommonEra, match=why):
        await agreed(Server(**answers))


async def test_reason_of_the_modern_era_names_what_is_spoken_where_nothing_else_may_be_tried() -> None:
    server = Server(discover=[{"supportedVersions": ["2099-01-01"]}])
    with pytest.raises(NoCommonEra, match=r"it speaks MCP \['2099-01-01'\]; expected 2026-07-28 among them"):
        await agreed(server, Terms(("modern",)))
    with pytest.raises(NoCommonEra, match="nothing was proposed"):
        await agreed(server, Terms(()))


@pytest.mark.parametrize(
    ("sent", "closed", "asked"),
    [
        (True, False, ["server/discover", "initialize"]),
        (True, True, ["server/discover"]),
        (False, False, ["server/discover"]),
    ],
)
async def test_connection_that_breaks_ends_it_unless_another_request_has_one_of_its_own(
    sent: bool, closed: bool, asked: list[str]
) -> None:
    server = Server(discover=[LinkLost("it broke", sent=sent)], initialize=[LinkLost("it broke", sent=sent)])
    if closed:
        server.closed.set()
    with pytest.raises(LinkLost, match="it broke"):
        await agreed(server)

    assert server.asked == asked


@pytest.mark.parametrize("make", [lambda: HANDSHAKE, lambda: {**HANDSHAKE, "capabilities": {}}])
async def test_server_that_declares_no_list_is_asked_for_each_once(make: Callable[[], dict[str, Any]]) -> None:
    lists = [{"tools": []}, {"tools": {}}, NoAnswer("no"), LinkLost("it broke", sent=True)]
    server = Server(initialize=[make()], list=lists)
    session = await agreed(server, Terms(("handshake",)))

    declares = "tools" in make()["capabilities"]
    assert server.asked == ["initialize"] + ([] if declares else ["tools/list", "prompts/list", "resources/list"])
    assert session.capabilities == {"tools": {}}
