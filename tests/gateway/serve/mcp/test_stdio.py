"""One client on two pipes, byte by byte, in front of servers that do what the test says."""

import contextlib
import json
import os

import anyio
import pytest

from gateway.errors import RpcError
from gateway.observe.metrics import Metrics
from tests.gateway.serve.mcp.http_requests import calling

pytestmark = pytest.mark.anyio

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def text(words):
    return {"content": [{"type": "text", "text": words}]}


async def quiet(_, __):
    return text("done")


async def curious(_, caller):
    return text(json.dumps(await caller.asked("elicitation/create", {"message": "who?"})))


async def test_client_shakes_hands_and_calls(servers, lines_of):
    servers.tool(quiet)
    async with lines_of(servers) as lines:
        greeting = await lines.greet({"roots": {}})
        lines.ask("tools/call", {"name": "quiet"}, "a")
        answer = await lines.line()

    assert (greeting["protocolVersion"], greeting["capabilities"]) == ("2025-11-25", servers.offered)
    assert answer == {"jsonrpc": "2.0", "id": "a", "result": text("done")}
    (caller,) = servers.callers
    assert servers.adopted == servers.ended == [caller.session]
    assert caller.session.capabilities == {"roots": {}}


async def test_request_before_the_greeting_is_refused_but_a_ping_is_answered(servers, lines_of):
    async with lines_of(servers) as lines:
        lines.ask("tools/list")
        refused = await lines.line()
        lines.ask("ping", request_id="p")
        pong = await lines.line()

    assert refused["error"]["code"] == -32600
    assert "initialize" in refused["error"]["message"]
    assert pong == {"jsonrpc": "2.0", "id": "p", "result": {}}


async def test_greeting_comes_while_no_server_is_up_and_what_came_with_it_is_answered_behind_it(servers, lines_of):
    servers.tool(quiet)
    servers.started = anyio.Event()
    async with lines_of(servers) as lines:
        lines.ask("initialize", {"protocolVersion": "2025-03-26"}, 0)
        lines.ask("tools/call", {"name": "quiet"})
        lines.ask("initialize", {"protocolVersion": "2025-03-26"}, 2)
        answers = [await lines.line() for _ in range(3)]

    twice = next(answer for answer in answers if answer["id"] == 2)
    assert twice["error"]["code"] == -32600
    assert [answer["id"] for answer in answers if answer is not twice] == [0, 1]


@pytest.mark.parametrize(("version", "ids"), [("2025-03-26", [1, 2]), ("2025-06-18", [None])])
async def test_batch_is_its_messages_where_the_version_has_batches(servers, lines_of, version, ids):
    servers.tool(quiet)
    call = {"jsonrpc": "2.0", "method": "tools/call", "params": {"name": "quiet"}}
    told = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    async with lines_of(servers) as lines:
        lines.ask("initialize", {"protocolVersion": version}, 0)
        await lines.line()
        lines.send(json.dumps([{**call, "id": 1}, told, {**call, "id": 2}]).encode())
        answers = [await lines.line() for _ in ids]

    assert sorted((answer["id"] for answer in answers), key=str) == ids
    assert all(("result" in answer) == (answer["id"] is not None) for answer in answers)


async def test_modern_client_learns_what_we_speak_while_no_server_is_up(servers, lines_of):
    servers.started = anyio.Event()
    async with lines_of(servers) as lines:
        lines.ask("server/discover", {"_meta": ENVELOPE})
        discovered = await lines.line()

    assert discovered["result"]["capabilities"] == servers.offered


@pytest.mark.parametrize("params", [{}, {"protocolVersion": "2025-11-25", "_meta": {"ai.codec/map": "sha256:00"}}])
async def test_greeting_that_is_refused_can_be_sent_again(servers, lines_of, params):
    async with lines_of(servers) as lines:
        lines.ask("initialize", params)
        refused = await lines.line()
        greeting = await lines.greet()

    assert refused["error"]["code"] in (-32602, -32600)
    assert greeting["serverInfo"]["name"] == "codec-gateway"


async def test_request_that_is_cancelled_in_the_breath_in_which_it_came_leaves_nothing_behind(servers, lines_of):
    servers.tool(quiet)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "quiet"}}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.send(call, cancel)
        await lines.settled()
        # Its id is free again.
        lines.send(call)
        answer = await lines.line()

    assert answer == {"jsonrpc": "2.0", "id": 1, "result": text("done")}
    assert [method for method, _ in servers.asked] == ["tools/call"]


async def test_modern_client_needs_no_greeting(servers, lines_of):
    servers.tool(quiet)
    async with lines_of(servers) as lines:
        lines.ask("tools/call", {"name": "quiet", "_meta": ENVELOPE})
        answer = await lines.line()

    assert answer["result"] == text("done")
    assert servers.callers[0].modern
    assert servers.adopted == []


async def test_client_may_look_what_we_speak_and_then_shake_hands(servers, lines_of):
    async with lines_of(servers) as lines:
        lines.ask("server/discover", {"_meta": ENVELOPE})
        discovered = await lines.line()
        greeting = await lines.greet()

    assert discovered["result"]["supportedVersions"] == ["2026-07-28"]
    assert greeting["protocolVersion"] == "2025-11-25"


@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({"io.modelcontextprotocol/protocolVersion": "2026-07-28"}, -32602),
        ({**ENVELOPE, "io.modelcontextprotocol/protocolVersion": "1999-01-01"}, -32022),
        ({**ENVELOPE, "io.modelcontextprotocol/protocolVersion": 7}, -32602),
    ],
)
async def test_envelope_that_is_not_in_order_is_refused(servers, lines_of, meta, code):
    async with lines_of(servers) as lines:
        lines.ask("tools/list", {"_meta": meta})
        answer = await lines.line()

    assert answer["error"]["code"] == code


@pytest.mark.parametrize(
    ("line", "code", "request_id"),
    [
        (b"garbage", -32700, None),
        (b"\xff\xfe", -32700, None),
        (b"[]", -32600, None),
        (b'{"jsonrpc":"2.0"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":3,"method":7}', -32600, 3),
        (b"x" * 200_000, -32700, None),
    ],
)
async def test_line_that_is_no_message_is_answered_and_the_next_one_is_read(servers, lines_of, line, code, request_id):
    async with lines_of(servers) as lines:
        await anyio.to_thread.run_sync(lines.send, line, b"", b"  ")
        lines.ask("ping")
        refused, pong = await lines.line(), await lines.line()

    assert (refused["error"]["code"], refused["id"]) == (code, request_id)
    assert pong["id"] == 1


async def test_messages_come_in_whatever_way_the_bytes_are_cut(servers, lines_of):
    async with lines_of(servers) as lines:
        os.write(lines.to_us, b'{"jsonrpc":"2.0",')
        await anyio.wait_all_tasks_blocked()
        os.write(lines.to_us, b'"id":1,"method":"ping"}\n{"jsonrpc":"2.0","id":2,"method":"ping"}\n')
        pongs = [await lines.line() for _ in range(2)]

    assert [pong["id"] for pong in pongs] == [1, 2]


async def test_requests_run_beside_each_other_and_each_id_is_its_own(servers, lines_of):
    began, _ = servers.hanging()
    servers.tool(quiet)
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "hang"}, 7)
        await began.wait()
        lines.ask("tools/call", {"name": "quiet"}, "7")
        beside = await lines.line()
        lines.ask("ping", request_id=7)
        twice = await lines.line()

    assert (beside["id"], beside["result"]) == ("7", text("done"))
    assert (twice["id"], twice["error"]["code"]) == (7, -32600)


async def test_cancelled_request_is_stopped_and_never_answered(servers, lines_of):
    began, cancelled = servers.hanging()
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "hang"}, 7)
        await began.wait()
        for request_id in ("7", None, [7], True, 8):
            lines.ask("notifications/cancelled", {"requestId": request_id}, None)
        lines.ask("ping")
        first = await lines.line()
        assert not cancelled.is_set()
        lines.ask("notifications/cancelled", {"requestId": 7}, None)
        lines.ask("ping", request_id=2)
        second = await lines.line()

    assert (first["id"], second["id"], cancelled.is_set()) == (1, 2, True)


async def test_client_is_asked_and_answers_or_refuses(servers, lines_of):
    servers.tool(curious)
    async with lines_of(servers) as lines:
        await lines.greet({"elicitation": {}})
        lines.ask("tools/call", {"name": "curious"}, 1)
        question = await lines.line()
        lines.send({"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": "g9", "result": {}})
        lines.send({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept"}})
        told = await lines.line()
        lines.ask("tools/call", {"name": "curious"}, 2)
        question = await lines.line()
        error = {"code": -1, "message": "no", "data": None}
        lines.send({"jsonrpc": "2.0", "id": question["id"], "error": error})
        refused = await lines.line()

    assert json.loads(told["result"]["content"][0]["text"]) == {"action": "accept"}
    assert refused["error"] == error


async def test_question_outside_of_a_request_goes_to_the_client_too(servers, lines_of):
    servers.tool(quiet)
    async with lines_of(servers) as lines:
        await lines.greet({"sampling": {}})
        (session,) = servers.adopted
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(session.asked, "sampling/createMessage", {"maxTokens": 1})
            question = await lines.line()
            lines.send({"jsonrpc": "2.0", "id": question["id"], "result": {}})

    assert (question["method"], question["params"]) == ("sampling/createMessage", {"maxTokens": 1})


@pytest.mark.parametrize("method", ["notifications/initialized", "tools/list"])
async def test_client_hears_nothing_of_starting_servers_before_it_is_initialized(servers, lines_of, method):
    servers.started = anyio.Event()
    async with lines_of(servers) as lines, anyio.create_task_group() as tasks:
        servers.change("tools")
        lines.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}}, 0)
        greeting = await lines.line()
        (session,) = servers.adopted
        session.notified("notifications/message", {"data": "early"})
        tasks.start_soon(session.asked, "roots/list", {})
        lines.ask("ping", request_id=1)
        pong = await lines.line()
        lines.ask(method, request_id=None if method.startswith("n") else 2)
        early, question = await lines.line(), await lines.line()
        lines.send({"jsonrpc": "2.0", "id": question["id"], "result": {}})

    assert (greeting["id"], pong["id"]) == (0, 1)
    assert (early["params"], question["method"]) == ({"data": "early"}, "roots/list")


async def test_modern_client_is_never_asked(servers, lines_of):
    servers.tool(curious)
    async with lines_of(servers) as lines:
        lines.ask("tools/call", {"name": "curious", "_meta": ENVELOPE})
        answer = await lines.line()

    assert answer["error"]["code"] == -32601


async def test_pushes_come_in_order_before_the_answer(servers, lines_of):
    async def chatty(_, caller):
        for step in range(3):
            caller.notified("notifications/progress", {"progress": step})
        return text("done")

    servers.tool(chatty)
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "chatty"})
        came = [await lines.line() for _ in range(4)]

    assert [each.get("params", {}).get("progress") for each in came] == [0, 1, 2, None]


async def test_changes_are_told_to_a_session_and_to_listeners_each_in_its_way(servers, lines_of):
    async with lines_of(servers) as lines:
        servers.change("tools")
        await lines.greet()
        lines.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}, "_meta": ENVELOPE}, "s")
        acknowledged = await lines.line()
        servers.change("tools")
        both = [await lines.line() for _ in range(2)]
        lines.ask("notifications/cancelled", {"requestId": "s"}, None)
        lines.ask("ping")
        await lines.line()
        servers.change("prompts")
        after = await lines.line()

    assert acknowledged["params"]["_meta"] == {SUBSCRIPTION: "s"}
    assert [each["method"] for each in both] == ["notifications/tools/list_changed"] * 2
    assert sorted(str(each.get("params")) for each in both) == ["None", str({"_meta": {SUBSCRIPTION: "s"}})]
    assert after == {"jsonrpc": "2.0", "method": "notifications/prompts/list_changed"}


async def test_notification_of_the_client_is_passed_on(servers, lines_of):
    async with lines_of(servers) as lines:
        lines.ask("notifications/roots/list_changed", {"early": 1}, None)
        await lines.greet()
        lines.ask("notifications/roots/list_changed", {"x": 1}, None)
        await servers.until(lambda: servers.told)

    assert servers.told == [("notifications/roots/list_changed", {"x": 1})]


async def test_end_of_input_cancels_what_runs(servers, lines_of):
    began, cancelled = servers.hanging()
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "hang"})
        await began.wait()
        lines.leave()

    assert cancelled.is_set()
    assert len(servers.ended) == 1


async def test_client_that_no_longer_reads_ends_it_all(servers, lines_of):
    began, cancelled = servers.hanging()
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "hang"})
        await began.wait()
        os.close(lines.from_us)
        lines.ask("ping", request_id=2)
        with anyio.fail_after(20):
            await cancelled.wait()


async def test_answer_larger_than_a_pipe_holds_arrives_whole_while_messages_still_come_in(servers, lines_of):
    async def large(_, __):
        return text("x" * 5_000_000)

    servers.tool(large)
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "large"})
        lines.ask("tools/call", {"name": "large"}, 2)
        await servers.until(lambda: len(servers.asked) == 2)
        answers = [await lines.line() for _ in range(2)]

    assert [answer["result"] for answer in answers] == [text("x" * 5_000_000)] * 2


async def test_client_that_does_not_read_loses_progress_only_and_is_not_listened_to_for_ever(servers, lines_of):
    async def flood(_, caller):
        for step in range(20):
            caller.notified("notifications/resources/updated", {"uri": f"x:{step}"})
            for _ in range(100):
                caller.notified("notifications/progress", {"progress": step, "message": "x" * 2000})
            await anyio.lowlevel.checkpoint()
        return text("done")

    servers.tool(flood)
    metrics = Metrics()
    async with lines_of(servers, metrics=metrics) as lines:
        await lines.greet()
        lines.ask("tools/call", {"name": "flood"})
        came = []
        while "result" not in (line := await lines.line()):
            came.append(line)

    updates = [line["params"]["uri"] for line in came if line["method"] == "notifications/resources/updated"]
    assert updates == [f"x:{step}" for step in range(20)]
    assert len(came) < 2020
    assert 'codec_notifications_dropped_total{reason="slow_client"} 0.0' not in metrics.render().decode()


async def test_file_as_input_is_answered_to_its_end(servers, tmp_path, endpoint_of):
    async def slow(_, __):
        await anyio.lowlevel.checkpoint()
        return text("done")

    servers.tool(slow)
    asked, answered = tmp_path / "in", tmp_path / "out"
    requests = [("initialize", {"protocolVersion": "2025-11-25"}), ("tools/call", {"name": "slow"})]
    bodies = [{"jsonrpc": "2.0", "id": n, "method": m, "params": p} for n, (m, p) in enumerate(requests)]
    asked.write_text("".join(json.dumps(body) + "\n" for body in bodies))
    source, sink = os.open(asked, os.O_RDONLY), os.open(answered, os.O_WRONLY | os.O_CREAT)
    try:
        with anyio.fail_after(20):
            await endpoint_of(servers).serve_descriptors(source, sink)
    finally:
        os.close(source)
        os.close(sink)

    assert [json.loads(line)["id"] for line in answered.read_text().splitlines()] == [0, 1]


async def test_nothing_as_input_ends_at_once_and_starts_nothing(servers, endpoint_of):
    started = []

    @contextlib.asynccontextmanager
    async def start():
        started.append(True)
        yield

    source, sink = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY)
    try:
        with anyio.fail_after(20):
            await endpoint_of(servers).serve_descriptors(source, sink, start())
    finally:
        os.close(source)
        os.close(sink)

    assert started == []


async def test_servers_start_when_the_client_has_said_what_it_can_be_asked_for(servers, lines_of):
    adopted = []
    servers.started = anyio.Event()

    @contextlib.asynccontextmanager
    async def start():
        adopted.extend(servers.adopted)
        servers.started.set()
        yield
        adopted.append("over")

    async with lines_of(servers, start=start()) as lines:
        await lines.greet({"roots": {}})

    assert [getattr(each, "capabilities", each) for each in adopted] == [{"roots": {}}, "over"]


async def test_failing_start_is_raised(servers, lines_of):
    @contextlib.asynccontextmanager
    async def start():
        raise RpcError({"code": 1, "message": "no"})
        yield

    async def greet() -> None:
        async with lines_of(servers, start=start()) as lines:
            lines.ask("initialize", {"protocolVersion": "2025-11-25"})
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as raised:
        await greet()

    assert isinstance(raised.value.exceptions[0], RpcError)


async def test_1024_requests_run_at_a_time_and_the_next_is_told_to_wait(servers, lines_of):
    servers.hanging()
    async with lines_of(servers) as lines:
        await lines.greet()
        # A pipe holds less than all of them.
        for first in range(1, 1025, 256):
            lines.send(*({"jsonrpc": "2.0", **calling("hang", number)} for number in range(first, first + 256)))
            await lines.settled()
        lines.ask("tools/call", {"name": "hang"}, 1025)
        refused = await lines.line()

    assert (refused["id"], refused["error"]["message"]) == (1025, "1024 requests are running: wait until one ends")


async def test_notifications_of_a_client_are_passed_on_up_to_256_at_a_time(servers, lines_of, monkeypatch):
    begun = []

    async def tell(method, *_):
        begun.append(method)
        await anyio.sleep_forever()

    monkeypatch.setattr(servers, "tell", tell)
    note = {"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}
    async with lines_of(servers) as lines:
        await lines.greet()
        lines.send(*[note] * 300)
        await lines.settled()

    assert len(begun) == 256
