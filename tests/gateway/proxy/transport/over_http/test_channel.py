"""What is sent to an endpoint and with which headers, what its statuses mean, and that no connection is kept."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

import anyio.lowlevel
import pytest

from gateway.config.address import Origin, read_url
from gateway.proxy.transport.http.channel import Channel
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, SessionForgotten
from tests.gateway.proxy.transport.kept_log import settled

pytestmark = pytest.mark.anyio
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"


class Answering:
    """A connection whose answer is known beforehand."""

    def __init__(self, status: int, waits: asyncio.Event | None = None, **headers: str) -> None:
        self.status = status
        self.headers = {name.replace("_", "-").encode(): text for name, text in headers.items()}
        self.asked = ("", "", b"", b"")
        self.decoded = False
        self.failed: list[str] = []
        self._waits = waits

    def send(self, method: str, path: str, lines: bytes, body: bytes) -> None:
        self.asked = (method, path, lines, body)

    async def head(self) -> None:
        if self._waits is not None:
            await self._waits.wait()
        if self.failed:
            raise LinkLost(self.failed[0])

    def header(self, name: str) -> str:
        return self.headers.get(name.encode(), "")

    def decode(self) -> None:
        self.decoded = True

    def fail(self, cause: str) -> None:
        self.failed.append(cause)
        if self._waits is not None:
            self._waits.set()


class Network:
    """Gives the connections that a test has prepared, and takes them back."""

    def __init__(self) -> None:
        self.next: list[Answering] = []
        self.used: list[Answering] = []
        self.back: list[tuple[Answering, bool]] = []

    async def take(self, origin: Origin) -> Answering:
        self.used.append(self.next.pop(0))
        return self.used[-1]

    def give(self, connection: Answering, *, drain: bool = False) -> None:
        self.back.append((connection, drain))

    def sent(self, header: str) -> list[str | None]:
        """The values of a header in what was asked."""
        found: list[str | None] = []
        for each in self.used:
            lines = dict(line.split(": ", 1) for line in each.asked[2].decode().splitlines())
            found.append(lines.get(header))
        return found


class Credentials:
    """Gives one token after another."""

    def __init__(self, *, better: bool = True) -> None:
        self.number = 1
        self.better = better
        self.refusals: list[tuple[int, str]] = []

    async def headers(self) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self.number}"}

    async def refused(self, status: int, www_authenticate: str, sent: Mapping[str, str]) -> bool:
        self.refusals.append((status, www_authenticate))
        self.number += self.better
        return self.better


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def channel_to(network: Network) -> Callable[..., Channel]:
    """Makes a channel whose requests get these answers, in turn."""

    def make(*answers: Answering, authorizer: Any = None, session: str = "", **headers: str) -> Channel:
        network.next = [*answers]
        channel = Channel(read_url("http://a.example/mcp"), headers, cast("Any", network), authorizer)
        channel.use_version(HANDSHAKE)
        if session:
            channel.begin_session(cast("Any", Answering(200, mcp_session_id=session)))
        return channel

    return make


async def test_each_message_carries_the_version_the_session_and_the_configured_headers(channel_to, network):
    channel = channel_to(Answering(200), Answering(200), session="s", **{"X-Key": "k", "Accept": "nothing"})
    await channel.post(b"{}", b"x-more: 1\r\n")
    await channel.post(b"{}", opening=True)

    assert network.used[0].asked[:2] == ("POST", "/mcp")
    assert network.used[0].asked[3] == b"{}"
    assert network.sent("mcp-session-id") == ["s", None]
    assert network.sent("mcp-protocol-version") == [HANDSHAKE, None]
    assert network.sent("x-key") == ["k", "k"]
    assert network.sent("accept") == ["application/json, text/event-stream"] * 2
    assert network.sent("x-more") == ["1", None]


async def test_modern_messages_are_sent_outside_a_session_that_is_still_ended(channel_to, network):
    channel = channel_to(Answering(200), ended := Answering(204), session="s")
    channel.use_version(MODERN)
    await channel.post(b"{}")
    await channel.end_session()
    await channel.end_session()

    assert network.sent("mcp-session-id") == [None, "s"]
    assert network.sent("mcp-protocol-version") == [MODERN, HANDSHAKE]
    assert ended.asked[0] == "DELETE"
    assert network.back == [(ended, True)]


async def test_session_that_the_server_has_forgotten_is_not_ended_and_nothing_more_is_sent(channel_to, network):
    channel = channel_to(gone := Answering(404), session="s")
    with pytest.raises(SessionForgotten) as lost:
        await channel.post(b"{}")
    with pytest.raises(SessionForgotten):
        await channel.post(b"{}")
    await channel.end_session()

    assert not lost.value.sent
    assert network.used == [gone]
    assert network.back == [(gone, False)]
    assert channel.closed.is_set()


async def test_404_outside_a_session_is_an_answer_like_any_other(channel_to):
    channel = channel_to(answer := Answering(404))

    assert cast("Any", await channel.post(b"{}")) is answer
    assert not channel.closed.is_set()


async def test_session_id_has_a_bound(channel_to):
    channel = channel_to()
    channel.begin_session(cast("Any", Answering(200, mcp_session_id="s" * 4096)))
    with pytest.raises(NoAnswer, match="its session id of 4097 characters is too long: expected at most 4096"):
        channel.begin_session(cast("Any", Answering(200, mcp_session_id="s" * 4097)))

    assert channel.session == "s" * 4096


async def test_name_that_an_answer_gives_the_session_is_used_from_then_on(channel_to, network):
    channel = channel_to(Answering(200, mcp_session_id="t"), Answering(200, mcp_session_id="t"), session="s")
    for _ in range(2):
        await channel.post(b"{}")

    assert network.sent("mcp-session-id") == ["s", "t"]


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirect_within_the_server_is_followed_with_the_same_message_and_kept(channel_to, network, status):
    channel = channel_to(moved := Answering(status, location="/mcp/"), Answering(200), Answering(200))
    for _ in range(2):
        await channel.post(b"{}")

    assert [each.asked[1] for each in network.used] == ["/mcp", "/mcp/", "/mcp/"]
    assert {each.asked[3] for each in network.used} == {b"{}"}
    assert network.back == [(moved, True)]


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("http://b.example/mcp", "it redirects to http://b.example "),
        ("https://a.example/mcp", "it redirects to https://a.example "),
        ("", "it redirects without saying where "),
        ("http://[", "it redirects without saying where "),
    ],
)
async def test_redirect_to_elsewhere_is_not_followed(channel_to, network, location, words):
    channel = channel_to(moved := Answering(307, location=location))
    with pytest.raises(NoAnswer) as refused:
        await channel.post(b"{}")

    assert str(refused.value).startswith(words)
    assert network.back == [(moved, True)]


async def test_redirects_end_after_three(channel_to, network):
    channel = channel_to(*(Answering(307, location=f"/{n}") for n in range(5)))
    last = await channel.post(b"{}")

    assert last.status == 307
    assert [each.asked[1] for each in network.used] == ["/mcp", "/0", "/1", "/2"]


@pytest.mark.parametrize("status", [401, 403])
async def test_request_that_is_refused_is_sent_once_more_where_there_are_better_credentials(
    channel_to, network, status
):
    credentials = Credentials()
    refusal = Answering(status, www_authenticate="Bearer x")
    channel = channel_to(refusal, again := Answering(status), authorizer=credentials)

    assert cast("Any", await channel.post(b"{}")) is again
    assert network.sent("authorization") == ["Bearer 1", "Bearer 2"]
    assert credentials.refusals == [(status, "Bearer x")]
    assert network.back == [(refusal, True)]


@pytest.mark.parametrize(("status", "better", "asked"), [(401, False, 1), (400, True, 0), (200, True, 0)])
async def test_other_answers_and_those_that_no_credentials_mend_are_not_repeated(channel_to, status, better, asked):
    credentials = Credentials(better=better)
    channel = channel_to(answer := Answering(status), authorizer=credentials)

    assert cast("Any", await channel.post(b"{}")) is answer
    assert len(credentials.refusals) == asked


async def test_connection_is_given_back_where_the_credentials_can_not_be_had(channel_to, network):
    class Failing(Credentials):
        async def refused(self, status: int, www_authenticate: str, sent: Mapping[str, str]) -> bool:
            raise NoAnswer("sign in")

    channel = channel_to(answer := Answering(401), authorizer=Failing())
    with pytest.raises(NoAnswer, match="sign in"):
        await channel.post(b"{}")

    assert network.back == [(answer, False)]


async def test_session_is_ended_with_the_last_credentials_where_there_are_no_others(channel_to, network):
    class Ending(Credentials):
        async def headers(self) -> Mapping[str, str]:
            if self.number > 1:
                raise NoAnswer("signed out")
            return await super().headers()

    credentials = Ending()
    channel = channel_to(Answering(200), Answering(204), authorizer=credentials, session="s")
    await channel.post(b"{}")
    credentials.number = 2
    await channel.end_session()

    assert network.sent("authorization") == ["Bearer 1", "Bearer 1"]


async def test_own_stream_is_asked_for_behind_the_last_event(channel_to, network):
    events = {"content_type": "text/event-stream; charset=utf-8"}
    channel = channel_to(first := Answering(200, **events), Answering(200, **events))
    assert not channel.stream_asked.is_set()
    assert cast("Any", await channel.open_stream(None)) is first
    await channel.open_stream("e-1")

    assert {each.asked[0] for each in network.used} == {"GET"}
    assert network.sent("last-event-id") == [None, "e-1"]
    assert network.sent("accept") == ["text/event-stream"] * 2
    assert network.back == []
    assert channel.has_stream
    assert channel.stream_asked.is_set()


@pytest.mark.parametrize("status", [401, 403, 408, 425, 429, 500, 503])
async def test_stream_that_can_not_be_opened_now_is_a_failure(channel_to, network, status):
    channel = channel_to(answer := Answering(status))
    with pytest.raises(NoAnswer, match=f"HTTP {status}"):
        await channel.open_stream(None)

    assert network.back == [(answer, True)]
    assert channel.stream_asked.is_set()


@pytest.mark.parametrize("status", [200, 400, 404, 405, 409, 499, 501])
async def test_server_that_offers_no_stream_says_so_by_any_other_status(channel_to, network, status):
    channel = channel_to(answer := Answering(status, content_type="text/plain"), session="s")

    assert await channel.open_stream(None) is None
    assert network.back == [(answer, True)]
    assert not channel.has_stream


async def test_404_for_a_stream_means_a_forgotten_session_only_where_there_was_a_stream(channel_to):
    channel = channel_to(Answering(200, content_type="text/event-stream"), Answering(404), session="s")
    await channel.open_stream(None)
    with pytest.raises(SessionForgotten):
        await channel.open_stream("e-1")


async def test_compressed_answer_is_decoded_and_a_plain_one_is_not(channel_to):
    channel = channel_to(packed := Answering(200, content_encoding="gzip"), plain := Answering(200))
    for _ in range(2):
        await channel.post(b"{}")

    assert (packed.decoded, plain.decoded) == (True, False)


async def test_cookies_of_the_server_come_back_to_it_unless_the_configuration_names_them(channel_to, network):
    channel = channel_to(Answering(200, set_cookie="a=1; path=/"), Answering(200))
    for _ in range(2):
        await channel.post(b"{}")
    ours = network.sent("cookie")
    network.used.clear()
    channel = channel_to(Answering(200, set_cookie="a=1"), Answering(200), Cookie="b=2")
    for _ in range(2):
        await channel.post(b"{}")

    assert ours == [None, "a=1"]
    assert network.sent("cookie") == ["b=2", "b=2"]


async def test_other_address_of_the_server_gets_the_same_headers(channel_to, network):
    channel = channel_to(Answering(200), authorizer=Credentials(), **{"X-Key": "k"})
    await channel.beside(read_url("http://a.example/messages?s=1")).post(b"{}")

    assert network.used[0].asked[1] == "/messages?s=1"
    assert network.sent("x-key") == ["k"]
    assert network.sent("authorization") == ["Bearer 1"]
    assert network.sent("mcp-protocol-version") == [HANDSHAKE]


async def test_loss_fails_what_is_running_and_what_comes_later_was_not_sent(channel_to, network):
    channel = channel_to(running := Answering(200, asyncio.Event()))
    asking = asyncio.create_task(channel.post(b"{}"))
    await anyio.lowlevel.checkpoint()
    await anyio.lowlevel.checkpoint()
    await channel.lose(LinkLost("it went"))
    with pytest.raises(LinkLost, match="it went"):
        await asking
    with pytest.raises(LinkLost, match="it went") as later:
        await channel.post(b"{}")

    assert running.failed == ["it went"]
    assert network.back == [(running, False)]
    assert not later.value.sent
    assert channel.closed.is_set()


async def test_requests_in_a_session_that_was_forgotten_are_failed_as_soon_as_each_has_its_answer(channel_to):
    waits = asyncio.Event()
    channel = channel_to(Answering(200, waits), hanging := Answering(200, asyncio.Event()), session="s")
    asking = [asyncio.create_task(channel.post(b"{}")) for _ in range(2)]
    await settled()
    channel.forget()
    losing = asyncio.create_task(channel.lose(LinkLost("it went")))
    await settled()
    waits.set()
    await settled()
    before = (asking[0].done(), losing.done(), hanging.failed)
    asking[1].cancel()
    await settled()

    assert before == (True, False, [])
    assert losing.done()
    await asking[0]
