"""The transport to a real process, on both event loops."""

import asyncio
import io
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.errors import RpcError
from gateway.observe.logs import configure_logging, get_logger
from gateway.proxy.transport.stdio.stdio_transport import open_stdio
from gateway.proxy.transport.transport_interface import MOST, LinkLost, NoAnswer, PeerError, Transport

pytestmark = pytest.mark.anyio
BOUND = 100_000
LOG = get_logger("test")


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


class Listener:
    """Hears what a server pushes, and answers what it asks."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.running = 0
        self.taken_back = asyncio.Event()
        self.release = asyncio.Event()
        self.release.set()

    def notified(self, method: str, params: dict[str, Any]) -> None:
        self.heard.append((method, params))

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "roots/list":
            raise RpcError({"code": -32601, "message": "no roots", "data": {"x": None}})
        if method == "breaks":
            raise KeyError("a secret of ours")
        self.running += 1
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.taken_back.set()
            raise
        finally:
            self.running -= 1
        return {"method": method, **params}


@pytest.fixture
def stream() -> Iterator[Callable[[], list[str]]]:
    """The lines of the log."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    written = io.StringIO()
    configure_logging(json=True, stream=written)
    yield lambda: written.getvalue().splitlines()
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def opened(upstream: Callable[..., UpstreamConfig], listener: Listener) -> Callable[..., Any]:
    """Opens the transport to one script under servers/."""

    def open_one(script: str, *args: str) -> Any:
        return open_stdio(upstream(script, *args), listener, line_bound=BOUND, log=LOG)

    return open_one


@pytest.fixture
def heard_by_server(notes: Path) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [json.loads(line) for line in notes.read_text().splitlines()]


async def call(transport: Transport, **arguments: Any) -> dict[str, Any]:
    with anyio.fail_after(20):
        return await transport.request("tools/call", {"name": "x", "arguments": arguments})


async def test_answer_comes_as_it_was_sent_with_fields_and_numbers_that_nobody_knows(opened):
    result = (
        '{"x": null, "big": 123456789012345678901234567890, "content": [{"type": "hologram"}], "_meta": {"a": null}}'
    )
    async with opened("puppet") as transport:
        line = f'{{"jsonrpc":"2.0","id":$ID,"result":{result}}}'
        assert await call(transport, lines=[line]) == json.loads(result)


async def test_error_of_the_server_comes_as_it_was_sent(opened):
    error = {"code": 7, "message": "no", "data": {"left": None}, "extra": [1]}
    async with opened("puppet") as transport:
        with pytest.raises(PeerError) as refused:
            await call(transport, lines=[json.dumps({"jsonrpc": "2.0", "id": 1, "error": error})])
        assert refused.value.error == error
        assert await call(transport) == {"done": True}


async def test_params_go_out_as_they_came(opened, heard_by_server):
    params = {"name": "x", "arguments": {"n": 2**70, "z": None}, "_meta": {"k": None}, "unknown": [{}]}
    async with opened("puppet") as transport:
        await transport.request("tools/call", params)
        await transport.notify("notifications/x", {"a": None})
        await transport.notify("notifications/y")
        await call(transport)

    first, second, third, _ = heard_by_server()
    assert first == {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    assert second == {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": None}}
    assert third == {"jsonrpc": "2.0", "method": "notifications/y"}


async def test_notifications_come_in_the_order_of_the_pipe_and_before_the_answer_behind_them(opened, listener):
    numbers = list(range(500))
    lines = [json.dumps({"jsonrpc": "2.0", "method": "n", "params": {"n": n}}) for n in numbers]
    async with opened("puppet") as transport:
        await call(transport, lines=lines)

    assert listener.heard == [("n", {"n": n}) for n in numbers]


async def test_answers_out_of_order_find_their_callers(opened):
    got: dict[str, Any] = {}

    async def ask(transport: Transport, key: str, **arguments: Any) -> None:
        got[key] = await call(transport, **arguments)

    async with opened("puppet") as transport, anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: ask(transport, "first", answer=False))
        await anyio.wait_all_tasks_blocked()
        late = '{"jsonrpc":"2.0","id":1,"result":{"late":true}}'
        tasks.start_soon(lambda: ask(transport, "second", lines=['{"jsonrpc":"2.0","id":$ID,"result":{"n":2}}', late]))

    assert got == {"first": {"late": True}, "second": {"n": 2}}


async def test_two_hundred_calls_at_once_are_all_answered(opened):
    async with opened("puppet") as transport:
        lines = ['{"jsonrpc":"2.0","id":$ID,"result":{"n":$ID}}']
        results = await asyncio.gather(*(call(transport, lines=lines) for _ in range(200)))

    assert [result["n"] for result in results] == list(range(1, 201))


async def test_questions_of_the_server_are_answered_in_the_midst_of_a_call(opened, listener):
    async with opened("asks_back") as transport:
        result = await call(transport)

    sampling, elicitation, roots, ping = result["structuredContent"]["answers"]
    assert sampling == {"jsonrpc": "2.0", "id": "q0", "result": {"method": "sampling/createMessage"}}
    assert elicitation == {"jsonrpc": "2.0", "id": "q1", "result": {"method": "elicitation/create"}}
    refusal = {"code": -32601, "message": "no roots", "data": {"x": None}}
    assert roots == {"jsonrpc": "2.0", "id": "q2", "error": refusal}
    assert ping == {"jsonrpc": "2.0", "id": "q3", "result": {}}
    assert [params["progress"] for _, params in listener.heard] == [0, 1, 2, 3]


async def test_question_that_breaks_us_is_answered_without_our_secrets(opened, heard_by_server):
    async with opened("puppet") as transport:
        await call(transport, lines=['{"jsonrpc":"2.0","id":"q","method":"breaks"}'])
        await anyio.wait_all_tasks_blocked()
        await call(transport)

    (answer,) = [message for message in heard_by_server() if message.get("id") == "q"]
    assert answer["error"] == {"code": -32603, "message": "the gateway failed to answer"}


async def test_questions_beyond_the_bound_are_refused_and_a_ping_is_not(opened, listener, heard_by_server):
    listener.release.clear()
    questions = [f'{{"jsonrpc":"2.0","id":"q{n}","method":"sampling/createMessage"}}' for n in range(MOST + 2)]
    async with opened("puppet") as transport:
        await call(transport, lines=[*questions, questions[0], '{"jsonrpc":"2.0","id":"p","method":"ping"}'])
        await anyio.wait_all_tasks_blocked()
        assert listener.running == MOST
        listener.release.set()
        await anyio.wait_all_tasks_blocked()
        await call(transport)

    answers = [message for message in heard_by_server() if "method" not in message]
    refused = [message["id"] for message in answers if "error" in message]
    assert sorted(refused) == sorted([f"q{MOST}", f"q{MOST + 1}", "q0"])
    assert len([message for message in answers if "result" in message]) == MOST + 1


async def test_question_that_the_server_takes_back_is_not_answered(opened, listener, heard_by_server):
    listener.release.clear()
    async with opened("puppet") as transport:
        await call(transport, lines=['{"jsonrpc":"2.0","id":5,"method":"sampling/createMessage"}'])
        await anyio.wait_all_tasks_blocked()
        back = '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}'
        await call(transport, lines=[back, back])
        with anyio.fail_after(20):
            await listener.taken_back.wait()
        await call(transport)

    assert [message["method"] for message in heard_by_server()] == ["tools/call"] * 3
    assert listener.heard == []


async def test_lines_that_are_no_messages_harm_nobody(opened, listener):
    late = '{"jsonrpc":"2.0","id":99,"result":{}}'
    lines = ["", "  ", "Welcome!", "[1]", "\x00\xff", "{}", late, '{"a":' * 300, "7"]
    async with opened("puppet") as transport:
        assert await call(transport, lines=lines) == {"done": True}

    assert listener.heard == []


@pytest.mark.parametrize(
    "answer",
    [
        '{"jsonrpc":"2.0","id":$ID,"result":[1]}',
        '{"id":$ID,"result":7}',
        '{"jsonrpc":"2.0","id":$ID,"error":[]}',
        '{"jsonrpc":"2.0","id":$ID,"result":' + '{"a":' * 400 + "1" + "}" * 401,
    ],
)
async def test_answer_that_nobody_can_use_fails_its_own_call(opened, answer):
    async with opened("puppet") as transport:
        with pytest.raises(NoAnswer, match="not a JSON-RPC response"):
            await call(transport, lines=[answer], answer=False)
        assert await call(transport) == {"done": True}


@pytest.mark.parametrize(
    "answer",
    [
        '{"jsonrpc":"2.0","id":"$ID","result":{"a":1}}',
        '{"jsonrpc":"2.0","id":$ID.0,"result":{"a":1}}',
        '{"jsonrpc":"2.0","id":$ID,"error":null,"result":{"a":1}}',
        '{"jsonrpc":"2.0","id":$ID,"method":null,"result":{"a":1}}',
        '{"jsonrpc":2.0,"id":"$ID","result":{"a":1}}',
        '{"id":$ID,"result":{"a":1}}',
        '\xef\xbb\xbf{"jsonrpc":"2.0","id":$ID,"result":{"a":1}}',
        'Loading... {"jsonrpc":"2.0","id":$ID,"result":{"a":1}}',
    ],
)
async def test_answer_in_a_form_that_official_clients_take_is_taken(opened, answer):
    async with opened("puppet") as transport:
        assert await call(transport, lines=[answer], answer=False) == {"a": 1}
        assert await call(transport) == {"done": True}


@pytest.mark.parametrize(
    "answer", ['{"jsonrpc":"2.0","id":"$ID","error":{"code":-5,"message":"no"}}', '{"id":$ID,"error":"no"}']
)
async def test_error_in_such_a_form_is_the_answer_of_its_call(opened, answer):
    async with opened("puppet") as transport:
        with pytest.raises(PeerError, match=r"^no$"):
            await call(transport, lines=[answer], answer=False)


NOBODYS = '{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"could not read it"}}'


async def test_error_without_an_id_is_that_of_the_only_call(opened):
    async with opened("puppet") as transport:
        await call(transport)
        with pytest.raises(PeerError, match="could not read it"):
            await call(transport, lines=[NOBODYS], answer=False)


async def test_error_without_an_id_after_a_notification_may_be_about_that_and_fails_nothing(opened):
    async with opened("puppet") as transport:
        await call(transport)
        await transport.notify("notifications/initialized")
        assert await call(transport, lines=[NOBODYS]) == {"done": True}


async def test_error_without_an_id_among_several_calls_fails_none_of_them(opened):
    async with opened("puppet") as transport:
        waiting = asyncio.create_task(call(transport, answer=False))
        await anyio.wait_all_tasks_blocked()
        assert await call(transport, lines=[NOBODYS]) == {"done": True}
        waiting.cancel()


BATCH = (
    '[{"jsonrpc":"2.0","method":"n","params":{"n":1}},{"jsonrpc":"2.0","id":$ID,"result":{"a":1}},'
    '{"jsonrpc":"2.0","id":"q","method":"ping"}]'
)


async def test_messages_of_a_batch_are_taken_one_by_one_where_the_version_has_batches(
    opened, listener, heard_by_server
):
    async with opened("puppet") as wire:
        wire.use_version("2025-03-26")
        assert await call(wire, lines=[BATCH], answer=False) == {"a": 1}
        await anyio.wait_all_tasks_blocked()
        await call(wire)

    assert listener.heard == [("n", {"n": 1})]
    assert {"jsonrpc": "2.0", "id": "q", "result": {}} in heard_by_server()


async def test_answer_in_a_batch_that_the_version_does_not_have_fails_its_own_call_by_name(
    opened, listener, heard_by_server
):
    async with opened("puppet") as wire:
        wire.use_version("2025-06-18")
        with pytest.raises(NoAnswer, match="its answer came in a JSON-RPC batch, which MCP 2025-06-18 does not have"):
            await call(wire, lines=[BATCH], answer=False)
        await anyio.wait_all_tasks_blocked()
        assert await call(wire) == {"done": True}

    assert listener.heard == []
    (refused,) = [message for message in heard_by_server() if message.get("id") == "q"]
    assert "JSON-RPC batch" in refused["error"]["message"]


async def test_batch_over_the_bound_fails_the_call_that_it_shows(opened):
    async with opened("puppet") as wire:
        line = '[{"jsonrpc":"2.0","id":$ID,"result":{"a":"' + "x" * BOUND + '"}}]'
        with pytest.raises(NoAnswer, match=r"over the limit \(limits.result_bytes\)"):
            await call(wire, lines=[line], answer=False)


async def test_half_a_surrogate_pair_and_bad_utf8_in_an_answer_become_replacement_characters(opened):
    async with opened("puppet") as transport:
        line = r'{"jsonrpc":"2.0","id":$ID,"result":{"a":"\ud800","b":"' + "\xff" + '"}}'
        assert await call(transport, lines=[line]) == {"a": "\ufffd", "b": "\ufffd"}


async def test_request_of_the_server_that_is_no_request_is_told_so(opened, heard_by_server):
    async with opened("puppet") as transport:
        await call(transport, lines=['{"jsonrpc":"2.0","id":"bad","method":7}'])
        await anyio.wait_all_tasks_blocked()
        await call(transport)

    (answer,) = [message for message in heard_by_server() if message.get("id") == "bad"]
    assert answer["error"]["code"] == -32600


@pytest.mark.parametrize("order", ["id-first", "id-last"])
async def test_answer_over_the_bound_fails_its_own_call_and_says_which_limit(opened, order):
    async with opened("huge") as transport:
        assert (await call(transport, bytes=BOUND - 500, order=order))["content"]
        with pytest.raises(NoAnswer, match=r"100000 bytes is over the limit \(limits.result_bytes\)"):
            await call(transport, bytes=BOUND + 1, order=order)
        assert (await call(transport, bytes=5, order=order))["content"][0]["text"] == "xxxxx"


async def test_answer_over_the_bound_fails_its_call_before_its_line_ends(opened):
    async with opened("huge") as transport:
        with pytest.raises(NoAnswer, match=r"100000 bytes is over the limit \(limits.result_bytes\)"):
            await call(transport, bytes=BOUND + 1, order="unended")
        assert (await call(transport, bytes=5))["content"][0]["text"] == "xxxxx"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"jsonrpc":"2.0","id":$ID,"result":' + "[" * 40_000 + "]" * 40_000 + "}", "nested too deeply"),
        ('{"result":' + '{"a":' * 15_000 + "1" + "}" * 15_000 + ',"jsonrpc":"2.0","id":$ID}', "nested too deeply"),
        ('{"jsonrpc":"2.0","id":$ID,"result":{"a":', "not JSON"),
    ],
)
async def test_answer_that_nobody_can_read_fails_its_call_at_once(opened, line, said):
    async with opened("puppet") as transport:
        with pytest.raises(NoAnswer, match=said):
            await call(transport, lines=[line], answer=False)
        assert await call(transport) == {"done": True}


async def test_params_that_no_json_can_carry_are_not_sent(opened, heard_by_server):
    async with opened("puppet") as transport:
        with pytest.raises(NoAnswer, match="was not sent"):
            await call(transport, text="\ud800")
        await call(transport)

    assert len(heard_by_server()) == 1


async def test_process_that_leaves_in_a_call_loses_it_and_says_how_it_left(opened):
    async with opened("puppet") as transport:
        with pytest.raises(LinkLost, match=r"its process ended \(exit code 3\)") as lost:
            await call(transport, exit=3)
        assert lost.value.sent
        assert transport.closed.is_set()
        with pytest.raises(LinkLost) as later:
            await call(transport)
        assert not later.value.sent
        await transport.notify("notifications/x")


async def test_every_caller_hears_of_the_end(opened):
    async with opened("puppet") as transport:
        waiting = [asyncio.ensure_future(call(transport, answer=False)) for _ in range(20)]
        await anyio.wait_all_tasks_blocked()
        waiting.append(asyncio.ensure_future(call(transport, exit=1)))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

    assert {type(outcome) for outcome in outcomes} == {LinkLost}


async def test_answer_written_just_before_the_end_still_arrives(opened):
    async with opened("puppet") as transport:
        line = '{"jsonrpc":"2.0","id":$ID,"result":{"a":"' + "x" * 90_000 + '"}}'
        assert len((await call(transport, lines=[line], exit=0))["a"]) == 90_000
        with anyio.fail_after(20):
            await transport.closed.wait()


async def test_output_that_ends_in_the_middle_of_a_line_is_said_in_the_log(listener, stream):
    config = UpstreamConfig(name="up", command=sys.executable, args=("-c", "print('{\"jsonrpc\"', end='')"))
    async with open_stdio(config, listener, line_bound=BOUND, log=LOG) as transport:
        with anyio.fail_after(20):
            await transport.closed.wait()

    assert "upstream's output ended in the middle of a line" in [json.loads(line)["event"] for line in stream()]


async def test_output_that_a_grandchild_holds_open_does_not_hide_the_end(listener):
    script = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])"
    config = UpstreamConfig(name="up", command=sys.executable, args=("-c", script))
    async with open_stdio(config, listener, line_bound=BOUND, log=LOG) as transport:
        with anyio.fail_after(20):
            await transport.closed.wait()


async def test_caller_that_goes_away_is_told_to_the_server_once(opened, heard_by_server):
    async with opened("puppet") as transport:
        with anyio.move_on_after(0.2):
            await transport.request("tools/call", {"name": "x", "arguments": {"answer": False}})
        await call(transport)

    _, told, _ = heard_by_server()
    assert told["method"] == "notifications/cancelled"
    assert told["params"]["requestId"] == 1


@pytest.mark.parametrize("method", ["initialize", "server/discover"])
async def test_request_before_the_conversation_is_never_cancelled(opened, heard_by_server, method):
    async with opened("puppet") as transport:
        with anyio.move_on_after(0.2):
            await transport.request(method, {"arguments": {"answer": False}})
        await call(transport)

    assert [message["method"] for message in heard_by_server()] == [method, "tools/call"]


async def test_answer_that_comes_after_its_caller_went_is_nobodys(opened):
    async with opened("puppet") as transport:
        with anyio.move_on_after(0.2):
            await transport.request("tools/call", {"name": "x", "arguments": {"answer": False}})
        assert await call(transport, lines=['{"jsonrpc":"2.0","id":1,"result":{}}']) == {"done": True}


async def test_deaf_server_holds_up_nobody_who_stops_waiting_and_what_waits_is_not_sent(opened, monkeypatch):
    monkeypatch.setattr("gateway.proxy.transport.stdio.stdio_transport._NOTIFY_TIME", 0.1)
    async with opened("deaf") as transport:
        for _ in range(2):
            await transport.request("initialize", {})
        await transport.notify("notifications/initialized")
        text = "x" * 300_000
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(lambda: transport.request("tools/call", {"text": text}))
            await anyio.wait_all_tasks_blocked()
            with anyio.move_on_after(0.1) as gave_up:
                await transport.request("tools/call", {})
            with anyio.fail_after(20):
                await transport.notify("notifications/x")
            tasks.cancel_scope.cancel()
        assert gave_up.cancelled_caught
        unread = transport.pipe._stdin.get_write_buffer_size()

    assert 0 < unread < 400_000


async def test_program_that_does_not_exist_is_an_error_of_the_operating_system(listener):
    config = UpstreamConfig(name="up", command="/nonexistent/program")
    with pytest.raises(FileNotFoundError):
        async with open_stdio(config, listener, line_bound=BOUND, log=LOG):
            pass


@pytest.mark.parametrize("script", ["stubborn", "leaves_orphan", "silent"])
async def test_leaving_ends_the_process_and_what_it_started(opened, noted_pids, is_running, script):
    async with opened(script) as transport:
        if script != "silent":
            await transport.request("tools/call", {"arguments": {}})
        else:
            with anyio.move_on_after(0.5):
                await transport.request("tools/call", {"arguments": {}})

    assert [pid for pid in noted_pids() if is_running(pid)] == []


async def test_leaving_fails_who_still_waits(opened):
    async with opened("puppet") as transport:
        waiting = asyncio.ensure_future(call(transport, answer=False))
        await anyio.wait_all_tasks_blocked()
    with pytest.raises(LinkLost, match="the gateway ended it"):
        await waiting


async def test_twenty_lives_leave_no_descriptor_task_or_process(opened, descriptors, noted_pids, is_running):
    async with opened("echo") as transport:
        await transport.request("tools/list", {})
    before, tasks = descriptors(), len(asyncio.all_tasks())
    for _ in range(20):
        async with opened("echo") as transport:
            await transport.request("tools/list", {})

    assert descriptors() <= before
    assert len(asyncio.all_tasks()) == tasks
    assert [pid for pid in noted_pids() if is_running(pid)] == []


async def test_child_sees_only_what_it_was_given(opened, monkeypatch):
    monkeypatch.setenv("OUR_SECRET", "s3cret")
    async with opened("echo") as transport:
        result = await call(transport)

    assert result["structuredContent"]["secret"] is None
    assert result["structuredContent"]["pid"] != os.getpid()
