"""The conversation over a pipe, line by line: what is written, and whom each line of the server reaches."""

import asyncio
import gc
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.proxy.transport.stdio.stdio_transport import StdioTransport, open_stdio
from gateway.proxy.transport.transport_interface import LinkLost, NoAnswer, PeerError, Unfit
from tests.gateway.proxy.transport.kept_log import KeptLog, settled

pytestmark = pytest.mark.anyio
BOUND = 1000


class Pipe:
    """A pipe to nobody: what is written is kept."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.room.set()
        self.written = b""

    @property
    def full(self) -> bool:
        return not self.room.is_set()

    def write(self, data: bytes) -> None:
        self.written += data

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.written.splitlines()]


class Client:
    """Hears what the server tells, and answers what it asks."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.says = asyncio.Event()
        self.late: list[str] = []

    def notified(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        try:
            await self.says.wait()
        except asyncio.CancelledError:
            self.late.append("left")
            raise
        return {"asked": method}

    def given_up(self) -> None:
        self.late.append("given up")

    def answered(self) -> None:
        self.late.append("answered")


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
async def transport(pipe: Pipe, client: Client, log: KeptLog) -> StdioTransport:
    transport = StdioTransport(client, line_bound=BOUND, log=cast("Any", log))
    transport.talk_over(pipe)
    return transport


@pytest.fixture
def says(transport: StdioTransport) -> Callable[..., None]:
    """Has the server write a message."""

    def say(**fields: Any) -> None:
        transport.take(json.dumps({"jsonrpc": "2.0", **fields}).encode())

    return say


def calling(transport: StdioTransport, count: int = 1, **more: Any) -> list[asyncio.Task[dict[str, Any]]]:
    return [asyncio.create_task(transport.request("tools/call", {"n": n}, **more)) for n in range(count)]


async def test_requests_are_lines_with_numbers_from_where_the_connection_counts(transport, pipe, says):
    transport.count_from(40)
    calls = calling(transport, 2)
    await settled()
    says(id=42, result={"of": 1})
    says(id="41", result={"of": 0})

    assert [(each["id"], each["method"], each["params"]) for each in pipe.messages] == [
        (41, "tools/call", {"n": 0}),
        (42, "tools/call", {"n": 1}),
    ]
    assert pipe.written.endswith(b"}\n")
    assert [await call for call in calls] == [{"of": 0}, {"of": 1}]


async def test_request_waits_until_the_process_reads(transport, pipe, says):
    pipe.room.clear()
    (call,) = calling(transport)
    await settled()
    assert pipe.written == b""
    pipe.room.set()
    await settled()
    says(id=1, result={})

    assert await call == {}


async def test_end_fails_those_that_wait_as_sent_and_those_that_come_later_as_not_sent(transport, pipe):
    (sent,) = calling(transport)
    await settled()
    pipe.room.clear()
    (unsent,) = calling(transport)
    await settled()
    transport.lose("it went")
    pipe.room.set()
    (later,) = calling(transport)
    lost = await asyncio.gather(sent, unsent, later, return_exceptions=True)
    await transport.notify("n")

    assert [(type(each), str(each), cast("LinkLost", each).sent) for each in lost] == [
        (LinkLost, "it went", True),
        (LinkLost, "it went", False),
        (LinkLost, "it went", False),
    ]
    assert transport.closed.is_set()
    assert len(pipe.messages) == 1


async def test_caller_that_goes_away_is_told_once_and_a_late_answer_marks_the_call_as_answered(
    transport, pipe, client, says
):
    (call,) = calling(transport, exchange=client)
    await settled()
    call.cancel()
    await settled()
    assert client.late == ["given up"]
    for _ in range(2):
        says(id=1, result={})

    assert client.late == ["given up", "answered"]
    cancelled = pipe.messages[1:]
    assert [(each["method"], each["params"]["requestId"]) for each in cancelled] == [("notifications/cancelled", 1)]


@pytest.mark.parametrize("method", ["initialize", "ping", "server/discover"])
async def test_request_that_may_precede_the_conversation_is_not_cancelled(transport, pipe, client, method):
    call = asyncio.create_task(transport.request(method, {}, client))
    await settled()
    call.cancel()
    await settled()

    assert [each["method"] for each in pipe.messages] == [method]


async def test_server_that_does_not_read_is_written_a_bounded_number_of_cancellations(transport, pipe, says):
    calls = calling(transport, 70)
    await settled()
    pipe.room.clear()
    for call in calls[:66]:
        call.cancel()
    await settled()
    unread = len(pipe.messages) - 70
    pipe.room.set()
    calls[66].cancel()
    await settled()
    pipe.room.clear()
    calls[67].cancel()
    await settled()

    assert unread == 64
    assert [each["params"]["requestId"] for each in pipe.messages[70 + 64 :]] == [67, 68]
    for call in calls[68:]:
        call.cancel()


async def test_messages_of_the_server_reach_the_client_and_its_questions_are_answered(transport, pipe, client, says):
    says(method="notifications/message", params={"a": 1})
    says(id="q", method="roots/list")
    says(id="r", method="sampling/createMessage")
    await settled()
    says(method="notifications/cancelled", params={"requestId": "r"})
    await settled()
    client.says.set()
    await settled()

    assert client.heard == [("notifications/message", {"a": 1})]
    assert pipe.messages == [{"jsonrpc": "2.0", "id": "q", "result": {"asked": "roots/list"}}]


async def test_question_for_others_is_answered_by_them_and_what_is_no_question_by_nobody(transport, pipe, client):
    other = Client()
    other.says.set()
    transport.take_question(b'{"jsonrpc":"2.0","id":5,"method":"roots/list"}', other)
    transport.take_question(b'{"jsonrpc":"2.0","method":"n"}', other)
    await settled()

    assert pipe.messages == [{"jsonrpc": "2.0", "id": 5, "result": {"asked": "roots/list"}}]
    assert (other.heard, client.heard) == ([], [])


async def test_error_without_an_id_is_that_of_the_only_request(transport, says, log):
    (call,) = calling(transport)
    await settled()
    says(id=None, error={"code": -32700, "message": "what?"})
    with pytest.raises(PeerError) as failed:
        await call

    assert failed.value.error == {"code": -32700, "message": "what?"}
    assert log.entries == []


@pytest.mark.parametrize(("count", "notify"), [(0, False), (2, False), (1, True)])
async def test_error_without_an_id_that_may_be_of_something_else_is_only_logged(transport, says, log, count, notify):
    calls = calling(transport, count)
    await settled()
    if notify:
        await transport.notify("notifications/initialized")
    says(id=None, error={"code": -32700, "message": "what\n?" + "x" * 400})
    for number in range(count):
        says(id=number + 1, result={"n": number})

    assert [await call for call in calls] == [{"n": number} for number in range(count)]
    (entry,) = log.entries
    assert entry["event"] == "upstream could not read a message from the gateway"
    assert entry["error"].startswith("what\\n?xxx")
    assert len(entry["error"]) < 300


async def test_error_without_an_id_is_that_of_the_only_request_again_after_an_answer(transport, says):
    (first,) = calling(transport)
    await settled()
    await transport.notify("n")
    says(id=1, result={})
    await first
    (second,) = calling(transport)
    await settled()
    says(id=None, error={"code": 1, "message": "no"})
    with pytest.raises(PeerError):
        await second


async def test_lines_before_the_first_answer_that_nobody_can_read_are_quoted(transport, says):
    assert transport.unread == ""
    transport.take(b"  ")
    transport.take(b"Hello\x1b \xff")
    assert transport.unread == r"it wrote a line that is not JSON-RPC, the first: 'Hello\\x1b \\xff'"
    transport.take(b"more")
    assert transport.unread == r"it wrote 2 lines that are not JSON-RPC, the first: 'Hello\\x1b \\xff'"
    says(id=1, result={})
    transport.take(b"later")
    assert transport.unread == r"it wrote 2 lines that are not JSON-RPC, the first: 'Hello\\x1b \\xff'"


async def test_words_before_an_answer_are_a_greeting_only_before_the_first_one(transport):
    first, second = calling(transport, 2)
    await settled()
    for number in (1, 2):
        transport.take(b'Hello {"jsonrpc":"2.0","id":%d,"result":{}}' % number)
    await settled()

    assert (first.done(), second.done()) == (True, False)
    second.cancel()


async def test_answer_that_is_not_strictly_valid_is_that_of_its_request_and_logged(transport, log):
    (call,) = calling(transport)
    await settled()
    transport.take(b'{"id":1,"result":{"a":1}}')

    assert await call == {"a": 1}
    assert [entry["event"] for entry in log.entries] == ["upstream sent a message that is not strictly valid JSON"]


async def test_error_that_comes_in_the_moment_in_which_its_caller_leaves_is_no_defect_of_ours(transport, says, pipe):
    unheard = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    (call,) = calling(transport)
    await settled()
    says(id=1, error={"code": 1, "message": "no"})
    call.cancel()
    await settled()
    gc.collect()

    assert call.cancelled()
    assert unheard == []
    assert len(pipe.messages) == 1


async def test_request_of_the_server_that_is_malformed_is_refused(transport, pipe, says, log):
    says(id=9, method=7)
    await settled()

    (answer,) = pipe.messages
    assert answer["id"] == 9
    assert answer["error"]["code"] == -32600
    assert [entry["event"] for entry in log.entries] == ["upstream printed a line that is not a JSON-RPC message"]


async def test_answer_that_can_not_be_used_fails_its_own_request(transport, says, log):
    broken, fine = calling(transport, 2)
    await settled()
    says(id=1, result=[])
    says(id=2, result={})
    with pytest.raises(NoAnswer, match="its answer"):
        await broken

    assert await fine == {}
    assert [entry["event"] for entry in log.entries] == ["upstream sent an answer that can't be used"]


async def test_answer_over_the_bound_fails_its_own_request(transport, says, log):
    (call,) = calling(transport)
    await settled()
    transport.warn_of_length(1001)
    transport.fail_too_long(1)
    with pytest.raises(Unfit, match="its answer of more than 1000 bytes"):
        await call

    assert log.entries == [{"event": "upstream sent a message over the limit", "bytes": 1001, "limit": BOUND}]


async def test_params_that_are_no_json_are_not_sent(transport, pipe):
    with pytest.raises(Unfit, match="half a surrogate pair"):
        await transport.request("tools/call", {"x": "\ud800"})

    assert pipe.written == b""


async def test_notification_for_a_server_that_does_not_read_is_dropped_after_a_while(transport, pipe, log, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.stdio.stdio_transport._NOTIFY_TIME", 0.001)
    pipe.room.clear()
    await transport.notify("n")

    assert pipe.written == b""
    assert log.entries == [
        {"event": "notification dropped: upstream does not read its input", "method": "n"},
    ]


async def test_nobody_is_asked_any_longer_after_the_end(transport, client, says):
    says(id="q", method="roots/list")
    await settled()
    transport.lose("it went")
    await settled()

    assert client.late == ["left"]


class Process:
    """A process whose output a test writes."""

    def __init__(self) -> None:
        self.child: Any = None

    @asynccontextmanager
    async def run(self, config: object, child: Any, watchdog: object) -> AsyncGenerator[None]:
        self.child = child
        child.connection_made(self)
        yield
        child.end_conversation("the gateway ended it")

    def get_pid(self) -> int:
        return 1

    def get_pipe_transport(self, fd: int) -> "Process":
        return self

    def write(self, data: bytes) -> None:
        pass

    def says(self, data: bytes) -> None:
        self.child.pipe_data_received(1, data)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Process:
    process = Process()
    monkeypatch.setattr("gateway.proxy.transport.stdio.stdio_transport.run_child", process.run)
    return process


@pytest.fixture
async def opened(process: Process, client: Client, log: KeptLog) -> AsyncGenerator[Any]:
    config = UpstreamConfig("up", command="c")
    async with open_stdio(config, client, line_bound=BOUND, log=cast("Any", log)) as transport:
        yield transport


LONG = b'{"jsonrpc":"2.0","id":1,"result":{"x":"' + b"y" * BOUND


@pytest.mark.parametrize("rest", [b'"}}\n', b""])
async def test_line_over_the_bound_fails_its_request_even_before_it_ends(opened, process, log, rest):
    one, two = calling(opened, 2)
    await settled()
    process.says(LONG + rest)
    with pytest.raises(Unfit, match="more than 1000 bytes"):
        await one
    process.says(b'"}}\n' if not rest else b"")
    process.says(b'{"jsonrpc":"2.0","id":2,"result":{}}\n')

    assert await two == {}
    assert [entry["event"] for entry in log.entries] == ["upstream sent a message over the limit"]


@pytest.mark.parametrize(
    ("last", "is_taken"), [(b'{"jsonrpc":"2.0","id":1,"result":{}}', True), (b'{"jsonrpc"', False)]
)
async def test_last_line_needs_no_end_if_it_is_whole(opened, process, log, last, is_taken):
    (one,) = calling(opened)
    await settled()
    process.says(last)
    process.child.end_conversation("it went")
    if is_taken:
        assert await one == {}
    else:
        with pytest.raises(LinkLost, match="it went"):
            await one

    assert [entry["event"] for entry in log.entries] == (
        [] if is_taken else ["upstream's output ended in the middle of a line"]
    )
