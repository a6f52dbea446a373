"""What the answer to each POST, and each event, comes to: a result, a push, a question or a line in the log."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from gateway.config.address import read_url
from gateway.proxy.transport.http.channel import Channel
from gateway.proxy.transport.http.http_transport import HttpTransport
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, Unfit
from tests.gateway.proxy.transport.kept_log import KeptLog, settled

pytestmark = pytest.mark.anyio
HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"


class Answering:
    """A connection whose answer is known beforehand."""

    def __init__(self, status: int, body: bytes = b"", kind: str = "application/json") -> None:
        self.status = status
        self.headers = {b"content-type": kind}
        self.sent: dict[str, Any] = {}
        self._body = body

    def send(self, method: str, path: str, lines: bytes, body: bytes) -> None:
        self.sent = json.loads(body) if body else {}

    async def head(self) -> None:
        pass

    def header(self, name: str) -> str:
        return self.headers.get(name.encode(), "")

    async def read(self, bound: int) -> bytes | None:
        return None if len(self._body) > bound else self._body

    async def chunk(self) -> bytes:
        body, self._body = self._body, b""
        return body


class Network:
    """Gives the connections that a test has prepared, and takes them back."""

    def __init__(self) -> None:
        self.next: list[Answering] = []
        self.used: list[Answering] = []
        self.back: list[Answering] = []

    async def take(self, origin: object) -> Answering:
        self.used.append(self.next.pop(0))
        return self.used[-1]

    def give(self, connection: Answering, *, drain: bool = False) -> None:
        self.back.append(connection)


class Client:
    """Hears what the server tells, and answers what it asks."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []

    def notified(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"asked": method}


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def transport_to(network: Network, client: Client, log: KeptLog) -> Callable[..., HttpTransport]:
    """Makes a transport whose messages get these answers, in turn."""

    def make(*answers: Answering, version: str = HANDSHAKE) -> HttpTransport:
        network.next = [*answers]
        channel = Channel(read_url("http://a.example/mcp"), {}, cast("Any", network), None)
        transport = HttpTransport(channel, client, bound=200, log=cast("Any", log))
        transport.use_version(version)
        return transport

    return make


def events(*messages: dict[str, Any] | bytes, kind: str = "message") -> Answering:
    written = [
        each if isinstance(each, bytes) else json.dumps({"jsonrpc": "2.0", **each}).encode() for each in messages
    ]
    body = b"".join(b"event: %b\ndata: %b\n\n" % (kind.encode(), each) for each in written)
    return Answering(200, body, "text/event-stream")


async def ask(transport: HttpTransport) -> dict[str, Any]:
    return await transport.request("tools/call", {"name": "x"})


async def test_json_answer_is_the_result_and_its_connection_is_given_back(transport_to, network):
    answers = [Answering(200, b'{"jsonrpc":"2.0","id":%d,"result":{"n":%d}}' % (n, n)) for n in (1, 2)]
    transport = transport_to(*answers)

    assert [await ask(transport) for _ in answers] == [{"n": 1}, {"n": 2}]
    assert [each.sent["id"] for each in network.used] == [1, 2]
    assert network.back == answers


@pytest.mark.parametrize("number", [1, "1"])
async def test_result_on_a_stream_is_the_one_of_the_request_and_pushes_before_it_are_heard(
    transport_to, client, network, number
):
    stream = events({"method": "n", "params": {"a": 1}}, {"id": 9, "result": {}}, {"id": number, "result": {"it": 1}})

    assert await ask(transport_to(stream)) == {"it": 1}
    assert client.heard == [("n", {"a": 1})]
    assert network.back == [stream]


@pytest.mark.parametrize("number", [1, "1", None])
async def test_error_on_a_stream_is_the_requests_if_it_has_its_id_or_none(transport_to, number):
    with pytest.raises(PeerError, match="no"):
        await ask(transport_to(events({"id": number, "error": {"code": 1, "message": "no"}})))


async def test_error_of_another_request_changes_nothing(transport_to):
    stream = events({"id": 9, "error": {"code": 1, "message": "no"}}, {"id": 1, "result": {"it": 1}})

    assert await ask(transport_to(stream)) == {"it": 1}


async def test_answer_on_a_stream_that_can_not_be_used_fails_the_request(transport_to):
    with pytest.raises(NoAnswer, match="its answer"):
        await ask(transport_to(events({"id": 1, "result": []}, {"id": 1, "result": {}})))


async def test_events_of_another_kind_count_only_where_they_answer(transport_to, client):
    stream = events({"method": "n"}, {"id": 1, "result": {"it": 1}}, kind="response")

    assert await ask(transport_to(stream)) == {"it": 1}
    assert client.heard == []


async def test_question_on_a_stream_is_answered_by_a_message_of_its_own(transport_to, network):
    stream = events({"id": "q", "method": "roots/list"}, {"id": 1, "result": {}})
    await ask(transport_to(stream, Answering(202)))
    await settled()

    assert network.used[1].sent == {"jsonrpc": "2.0", "id": "q", "result": {"asked": "roots/list"}}


async def test_question_of_a_modern_server_is_not_answered_but_logged(transport_to, network, log):
    stream = events({"id": "q", "method": "roots/list"}, {"id": 1, "result": {}})
    await ask(transport_to(stream, version=MODERN))
    await settled()

    assert network.used == [stream]
    assert log.entries == [
        {"event": "upstream sent a request, which 2026-07-28 does not allow", "method": "roots/list"}
    ]


async def test_event_that_is_no_message_is_logged_and_the_answer_behind_it_is_taken(transport_to, log):
    assert await ask(transport_to(events(b"what", {"id": 1, "result": {"it": 1}}))) == {"it": 1}
    assert [each["event"] for each in log.entries] == ["upstream sent an event that is not a JSON-RPC message"]


async def test_push_over_the_bound_is_logged_and_skipped_and_an_answer_over_it_fails_the_request(transport_to, log):
    push = events({"method": "n", "params": {"x": "y" * 200}}, {"id": 1, "result": {"it": 1}})

    assert await ask(transport_to(push)) == {"it": 1}
    with pytest.raises(Unfit, match="more than 200 bytes"):
        await ask(transport_to(events({"id": 1, "result": {"x": "y" * 200}})))
    assert {each["event"] for each in log.entries} == {"upstream sent a message over the limit"}
    assert [each["limit"] for each in log.entries] == [200, 200]
    assert all(each["bytes"] > 200 for each in log.entries)


@pytest.mark.parametrize(("status", "refused"), [(202, False), (399, False), (400, True), (500, True)])
async def test_notification_that_is_refused_is_logged(transport_to, network, log, status, refused):
    transport = transport_to(answer := Answering(status))
    await transport.notify("n", {"a": 1})

    assert answer.sent == {"jsonrpc": "2.0", "method": "n", "params": {"a": 1}}
    assert network.back == [answer]
    assert log.entries == ([{"event": "upstream refused a message", "status": status}] if refused else [])


async def test_notification_that_can_not_be_delivered_raises_nothing_and_is_logged(transport_to, log):
    class Broken(Answering):
        async def head(self) -> None:
            raise LinkLost("it\nbroke")

    await transport_to(Broken(0)).notify("n")

    assert log.entries == [{"event": "message to upstream not delivered", "cause": "it\\nbroke"}]


async def test_caller_that_goes_away_is_told_to_a_server_of_the_handshake_era(transport_to, network):
    class Waiting(Answering):
        async def head(self) -> None:
            await asyncio.Event().wait()

    for version, told in ((HANDSHAKE, ["notifications/cancelled"]), (MODERN, [])):
        network.used.clear()
        transport = transport_to(Waiting(200), Answering(202), version=version)
        asking = asyncio.create_task(ask(transport))
        await settled()
        asking.cancel()
        await settled()

        assert [each.sent["method"] for each in network.used[1:]] == told
        assert [each.sent["params"]["requestId"] for each in network.used[1:]] == [1] * len(told)


async def test_answer_to_a_request_that_was_only_accepted_comes_on_the_servers_own_stream(transport_to, client):
    stream = events({"method": "n"}, {"id": 1, "result": {"it": 1}})
    transport = transport_to(Answering(202), stream, Answering(202, kind="text/html"))
    await transport.notify("notifications/initialized")
    await settled()
    with anyio.fail_after(20):
        assert await ask(transport) == {"it": 1}
    await transport.close()

    assert client.heard == [("n", {})]


async def test_close_waits_until_nothing_runs_any_more(transport_to, network):
    class Open(Answering):
        async def chunk(self) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

        def fail(self, cause: str) -> None:
            pass

    stream = Open(200, kind="text/event-stream")
    transport = transport_to(Answering(202), stream)
    await transport.notify("notifications/initialized")
    await settled()
    before = [*network.back]
    await transport.close()

    assert stream not in before
    assert stream in network.back


async def test_server_that_does_not_react_is_sent_a_bounded_number_of_cancellations(transport_to, network):
    class Waiting(Answering):
        async def head(self) -> None:
            await asyncio.Event().wait()

        def fail(self, cause: str) -> None:
            pass

    transport = transport_to(*(Waiting(200) for _ in range(60)))
    asking = [asyncio.create_task(ask(transport)) for _ in range(30)]
    await settled()
    for each in asking:
        each.cancel()
    await settled()
    methods = [each.sent["method"] for each in network.used]
    await transport.close()

    assert methods.count("tools/call") == 30
    assert methods.count("notifications/cancelled") == 17


class InPieces(Answering):
    """An event stream that comes in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__(200, kind="text/event-stream")
        self._pieces = [*pieces, b""]

    async def chunk(self) -> bytes:
        return self._pieces.pop(0)


PUSH = b'data: {"jsonrpc":"2.0","method":"n","params":{"x":"'


async def test_push_over_the_bound_that_comes_in_pieces_is_logged_once_and_one_without_an_end_ends_the_stream(
    transport_to, log
):
    answer = b'data: {"jsonrpc":"2.0","id":1,"result":{"it":1}}\n\n'
    assert await ask(transport_to(InPieces(PUSH + b"y" * 200, b"y" * 50, b'"}}\n\n', answer))) == {"it": 1}
    once = [each["event"] for each in log.entries]
    log.entries.clear()
    with pytest.raises(Unfit, match="more than 400 bytes"):
        await ask(transport_to(InPieces(PUSH + b"y" * 200, b"y" * 300)))

    assert once == [each["event"] for each in log.entries] == ["upstream sent a message over the limit"]


async def test_log_lines_that_were_left_out_are_counted_at_the_end(transport_to, log):
    transport = transport_to(*(Answering(400) for _ in range(201)))
    for _ in range(201):
        await transport.notify("n")
    before = len(log.entries)
    await transport.close()

    assert before == 200
    assert log.entries[200:] == [
        {"event": "upstream caused too many log lines; some were dropped", "lines_left_out": 1}
    ]


@pytest.mark.parametrize(("status", "is_asked"), [(400, True), (404, True), (405, True), (403, False), (500, False)])
async def test_server_that_takes_no_post_is_asked_for_the_stream_of_older_ones(transport_to, network, status, is_asked):
    transport = transport_to(Answering(status), Answering(405))
    with pytest.raises(NoAnswer, match=f"HTTP {status}"):
        await transport.request("initialize", {})

    assert len(network.used) == 1 + is_asked
