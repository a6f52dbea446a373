"""Which line goes to whom, between several workers and one process."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.lines import LineSplitter
from gateway.protocol.messages import encode_failure, encode_notification, encode_request, encode_response
from gateway.proxy.transport.stdio.hosted import SHIFT, STRANGE
from gateway.workers.stdio.switch import SERVER, Switch, To

INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


class Worker:
    """One connection: asks by the numbers that are its own."""

    def __init__(self, switch: Switch) -> None:
        self.switch = switch
        self.number = switch.seats.join().number
        self.asked = 0

    def next_id(self) -> int:
        self.asked += 1
        return (self.number << SHIFT) + self.asked

    def ask(self, method: str = "tools/call", now: float = 0.0, **params: Any) -> tuple[int, list[To]]:
        request = self.next_id()
        return request, self.switch.from_worker(self.number, encode_request(request, method, params), now)

    def tell(self, method: str, **params: Any) -> list[To]:
        return self.switch.from_worker(self.number, encode_notification(method, params), 0.0)

    def answer(self, question: int | str) -> list[To]:
        return self.switch.from_worker(self.number, encode_response(question, {}), 0.0)

    def cancel(self, request: int) -> list[To]:
        return self.tell("notifications/cancelled", requestId=request, reason="x")


@pytest.fixture
def switch() -> Switch:
    return Switch(64)


@pytest.fixture
def two(switch: Switch) -> tuple[Worker, Worker]:
    return Worker(switch), Worker(switch)


def says(switch: Switch, line: bytes, bound: int = 10_000) -> list[To]:
    """What becomes of a line of the process."""
    return [to for each in LineSplitter(bound).feed(line + b"\n") for to in switch.from_server(each)]


def push(method: str, **params: Any) -> bytes:
    return encode_notification(method, params)


def answered(request: int) -> bytes:
    return encode_response(request, {"content": []})


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":%d,"result":{}}',
        b'{"result":{},"jsonrpc":"2.0","id":%d}',
        b'{"jsonrpc": "2.0", "result": {"a": 1}, "id": %d, "more": true}',
        b'  {"id":%d,"jsonrpc":"2.0","result":{}}\r',
        b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":%d,"result":{"half":"\\ud800"}}',
        b'{"jsonrpc":"2.0","result":{"cut":"\xff","id":',
    ],
)
def test_answer_goes_to_who_asked_as_it_came_and_to_nobody_else(switch, two, line):
    request, out = two[1].ask()
    assert out == [(SERVER, encode_request(request, "tools/call", {}))]
    said = line % request if b"%d" in line else line + b'0},"jsonrpc":"2.0","id":%d}' % request

    assert says(switch, said) == [(two[1].number, said.strip())]
    assert says(switch, said) == []


def test_answer_that_nobody_asked_for_or_to_another_name_of_the_number_goes_nowhere(switch, two):
    request, _ = two[0].ask()
    for number in (0, 7, request + 1, request + (1 << SHIFT), request + (9 << SHIFT), -request):
        assert says(switch, answered(number)) == []

    assert says(switch, answered(request)) != []


@pytest.mark.parametrize("form", [b'"%d"', b"%d.0"])
def test_answer_that_repeats_its_number_in_another_form_reaches_who_asked(switch, two, form):
    request, _ = two[1].ask()
    said = b'{"jsonrpc":"2.0","id":' + form % request + b',"result":{}}\n'

    assert [worker for worker, _ in says(switch, said)] == [two[1].number]


def test_handshake_is_asked_once_and_every_worker_gets_its_answer(switch, two):
    third = Worker(switch)
    first, out = two[0].ask("initialize", **INITIALIZE)
    assert [to for to, _ in out] == [SERVER]
    second, out = two[1].ask("initialize", **INITIALIZE)
    assert out == []

    out = says(switch, encode_response(first, {"protocolVersion": "2025-11-25"}))
    assert [(to, json.loads(line)["id"]) for to, line in out] == [(two[0].number, first), (two[1].number, second)]
    later, out = third.ask("initialize", **INITIALIZE)
    assert out == [(third.number, encode_response(later, {"protocolVersion": "2025-11-25"}))]

    told = [len(each.tell("notifications/initialized")) for each in (*two, third)]
    assert told == [1, 0, 0]


@pytest.mark.parametrize("how", ["refused", "long", "no JSON"])
def test_refusal_of_the_handshake_is_everybodys_who_waits_and_who_comes_later_asks_anew(switch, two, how):
    first, _ = two[0].ask("initialize", **INITIALIZE)
    second, _ = two[1].ask("initialize", **INITIALIZE)
    lines = {
        "refused": encode_failure(first, {"code": 1, "message": "no"}),
        "long": encode_response(first, {"x": "y" * 1000}),
        "no JSON": b'{"jsonrpc":"2.0","id":%d,"result":{' % first,
    }
    out = says(switch, lines[how], bound=500)

    assert [to for to, _ in out] == [two[0].number, two[1].number]
    assert all(b"%d" % request in line for request, (_, line) in zip((first, second), out, strict=True))
    assert [to for to, _ in two[1].ask("initialize", **INITIALIZE)[1]] == [SERVER]


def test_handshake_survives_the_worker_that_asked_for_it(switch, two):
    first, _ = two[0].ask("initialize", **INITIALIZE)
    second, _ = two[1].ask("initialize", **INITIALIZE)
    assert switch.leave(two[0].number, 0.1) == []

    assert says(switch, encode_response(first, {})) == [(two[1].number, encode_response(second, {}))]


def test_worker_that_leaves_has_its_requests_cancelled_and_their_answers_dropped(switch, two):
    call, _ = two[0].ask()
    listing, _ = two[0].ask("tools/list")
    ping, _ = two[0].ask("ping")
    other, _ = two[1].ask()
    out = switch.leave(two[0].number, 0.0)

    assert [to for to, _ in out] == [SERVER, SERVER]
    assert {json.loads(line)["params"]["requestId"] for _, line in out} == {call, listing}
    for request in (call, listing, ping):
        assert says(switch, answered(request)) == []
    assert says(switch, answered(other)) == [(two[1].number, answered(other))]
    assert Worker(switch).number not in (two[0].number, two[1].number)


def test_call_that_is_given_up_is_cancelled_once_and_its_late_answer_still_told(switch, two):
    call, _ = two[0].ask()
    assert [to for to, _ in two[0].cancel(call)] == [SERVER]
    assert two[0].cancel(call) == []
    assert says(switch, answered(call)) == [(two[0].number, answered(call))]


def test_calls_over_the_bound_wait_in_order_whosever_they_are(switch):
    switch = Switch(2)
    one, two = Worker(switch), Worker(switch)
    first, _ = one.ask()
    second, _ = one.ask()
    third, out = two.ask()
    fourth, also = one.ask()
    fifth, too = two.ask()
    assert out == also == too == []
    assert two.cancel(third) == []

    out = says(switch, answered(first))
    assert out == [(one.number, answered(first)), (SERVER, encode_request(fourth, "tools/call", {}))]
    assert one.cancel(second)[1:] == [(SERVER, encode_request(fifth, "tools/call", {}))]


def test_calls_of_a_worker_that_leaves_make_room_for_those_of_others():
    switch = Switch(1)
    one, two = Worker(switch), Worker(switch)
    one.ask()
    one.ask()
    waiting, _ = two.ask()

    out = switch.leave(one.number, 0.0)
    assert [json.loads(line).get("id") for _, line in out] == [None, waiting]
    assert says(switch, answered(waiting)) == [(two.number, answered(waiting))]


@pytest.mark.parametrize("kind", ["tools", "prompts", "resources"])
def test_change_of_a_list_is_told_to_all(switch, two, kind):
    line = push(f"notifications/{kind}/list_changed")

    assert says(switch, line) == [(worker.number, line) for worker in two]


def test_progress_goes_to_whose_token_it_is(switch, two):
    for worker in two:
        line = push("notifications/progress", progressToken=(worker.number << SHIFT) + 5, progress=1)
        assert says(switch, line) == [(worker.number, line)]
    for token in (5, "a", None, True, (9 << SHIFT) + 1):
        assert says(switch, push("notifications/progress", progressToken=token, progress=1)) == []


def test_what_is_tied_to_a_subscription_goes_to_whose_it_is(switch, two):
    listen, _ = two[1].ask("subscriptions/listen")
    meta = {"io.modelcontextprotocol/subscriptionId": listen}
    for method in ("tools/list_changed", "resources/updated", "subscriptions/acknowledged"):
        line = push(f"notifications/{method}", _meta=meta)
        assert says(switch, line) == [(two[1].number, line)]


def test_log_message_is_for_the_only_worker_with_callers_and_for_nobody_where_there_are_two(switch, two):
    line = push("notifications/message", level="info", data="of one caller")
    two[0].ask("tools/list")
    mine, _ = two[1].ask()
    assert says(switch, line) == [(two[1].number, line)]

    other, _ = two[0].ask()
    assert says(switch, line) == []
    two[0].cancel(other)
    assert says(switch, line) == []
    says(switch, answered(other))
    assert says(switch, line) == [(two[1].number, line)]
    switch.leave(two[1].number, 0.0)
    assert says(switch, line) == []
    says(switch, answered(mine))
    assert says(switch, line) == [(two[0].number, line)]


def test_question_is_put_to_the_only_worker_with_callers_and_marked_where_there_are_two(switch, two):
    line = encode_request("q", "elicitation/create", {"message": "?"})
    two[1].ask()
    assert says(switch, line) == [(two[1].number, line)]
    assert two[1].answer("q") == [(SERVER, encode_response("q", {}))]

    two[0].ask()
    ((to, marked),) = says(switch, line)
    assert (to, marked) == (two[0].number, b"~" + line)


def test_question_is_taken_back_where_it_was_put_and_refused_when_that_worker_leaves(switch, two):
    two[1].ask()
    says(switch, encode_request(3, "sampling/createMessage", {}))
    line = push("notifications/cancelled", requestId=3)
    assert says(switch, line) == [(two[1].number, line)]

    out = switch.leave(two[1].number, 0.0)
    refusal = json.loads(out[-1][1])
    assert (out[-1][0], refusal["id"], "error" in refusal) == (SERVER, 3, True)
    assert says(switch, line) == []


def test_question_of_a_very_long_name_is_put_and_answered_and_its_name_is_not_kept(switch, two):
    two[1].ask()
    name = "q" * 5000
    line = encode_request(name, "elicitation/create", {"message": "?"})

    assert says(switch, line) == [(two[1].number, line)]
    assert says(switch, push("notifications/cancelled", requestId=name)) == []
    assert two[1].answer(name) == [(SERVER, encode_response(name, {}))]


def test_ping_of_the_process_is_for_any_worker(switch, two):
    two[0].ask()
    two[1].ask()
    line = encode_request(1, "ping", {})

    assert says(switch, line) == [(two[0].number, line)]


def test_subscription_ends_with_the_last_worker_that_wants_it(switch, two):
    for worker in two:
        assert [to for to, _ in worker.ask("resources/subscribe", uri="x:1")[1]] == [SERVER]
    line = push("notifications/resources/updated", uri="x:1")
    assert says(switch, line) == [(worker.number, line) for worker in two]

    request, out = two[0].ask("resources/unsubscribe", uri="x:1")
    assert out == [(two[0].number, encode_response(request, {}))]
    assert says(switch, line) == [(two[1].number, line)]
    assert [to for to, _ in two[1].ask("resources/unsubscribe", uri="x:1")[1]] == [SERVER]


def test_subscription_of_a_worker_that_leaves_is_ended_unless_others_want_it(switch, two):
    for worker in two:
        worker.ask("resources/subscribe", uri="both")
    two[0].ask("resources/subscribe", uri="one's")
    out = [json.loads(line) for _, line in switch.leave(two[0].number, 0.0)]

    unsubscribed = [message for message in out if message["method"] == "resources/unsubscribe"]
    assert [message["params"] for message in unsubscribed] == [{"uri": "one's"}]
    assert says(switch, answered(unsubscribed[0]["id"])) == []


def test_log_level_of_the_process_is_the_one_that_lets_most_through(switch, two):
    def level(out: list[To]) -> str:
        return json.loads(out[0][1])["params"]["level"]

    assert level(two[0].ask("logging/setLevel", level="info")[1]) == "info"
    request, out = two[1].ask("logging/setLevel", level="error")
    assert (level(out), json.loads(out[0][1])["id"]) == ("info", request)
    assert level(two[0].ask("logging/setLevel", level="warning")[1]) == "warning"


@pytest.mark.parametrize("level", [7, None])
def test_strange_log_level_is_for_the_process_to_refuse(switch, two, level):
    two[0].ask("logging/setLevel", level="info")
    request, out = two[1].ask("logging/setLevel", level=level)

    assert out == [(SERVER, encode_request(request, "logging/setLevel", {"level": level}))]


def test_what_is_wanted_of_the_process_may_lack_everything(switch, two):
    for method in ("resources/subscribe", "resources/unsubscribe", "logging/setLevel"):
        request = two[0].next_id()
        line = b'{"jsonrpc":"2.0","id":%d,"method":"%b","params":7}' % (request, method.encode())
        assert switch.from_worker(two[0].number, line, 0.0) == [(SERVER, line)]
    for params in ({}, {"uri": 7}):
        line = push("notifications/resources/updated", **params)
        assert says(switch, line) == [(worker.number, line) for worker in two]
    assert [to for to, _ in two[0].ask("resources/unsubscribe", uri="never")[1]] == [SERVER]


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":"x","result":{},"id":null,"error":{"code":1,"message":"no"}}',
    ],
)
def test_error_that_belongs_to_no_request_is_shown_to_one_worker(switch, two, line):
    assert says(switch, line) == [(two[0].number, line)]


def test_answer_that_is_none_reaches_who_asked_though_its_number_is_a_text(switch, two):
    request, _ = two[1].ask()
    line = b'{"jsonrpc":"2.0","id":"%d","result":7}' % request

    assert [to for to, _ in says(switch, line)] == [two[1].number]
    assert says(switch, line) == []


def test_empty_line_is_nothing_and_nobody_hears_what_is_said_when_all_have_left(switch, two):
    assert says(switch, b"  ") == []
    for worker in two:
        switch.leave(worker.number, 0.0)
    for line in (b"x", push("notifications/message", data="x"), encode_request(1, "ping", {}), b"x" * 20_000):
        assert says(switch, line) == []


def test_worker_of_whose_calls_too_many_were_given_up_may_always_be_meant(switch, two):
    given_up = [two[0].ask()[0] for _ in range(257)]
    line = push("notifications/message", level="info", data="of one caller")
    for request in given_up:
        two[0].cancel(request)
    late = [says(switch, answered(request)) for request in given_up]
    two[1].ask()
    assert says(switch, line) == []
    switch.leave(two[0].number, 0.0)

    assert [bool(each) for each in late] == [False, *[True] * 256]
    assert says(switch, line) == []


def test_calls_of_those_who_left_are_remembered_up_to_a_bound(switch, two):
    left: list[int] = []
    for worker in (Worker(switch), Worker(switch)):
        left += [worker.ask()[0] for _ in range(129)]
        switch.leave(worker.number, 0.0)
    line = push("notifications/message", level="info", data="of one caller")
    for request in left[2:]:
        says(switch, answered(request))

    # Of the first two nobody knows whether they still run.
    assert says(switch, line) == []


def test_questions_are_remembered_up_to_a_bound_and_the_oldest_is_forgotten(switch, two):
    two[1].ask()
    for number in range(1025):
        says(switch, encode_request(number, "sampling/createMessage", {}))
    cancelled = [says(switch, push("notifications/cancelled", requestId=number)) for number in (0, 1, 1024, True, None)]

    assert [bool(each) for each in cancelled[:3]] == [False, True, True]
    assert cancelled[4] == []
    assert len(switch.leave(two[1].number, 0.0)) == 1 + 1024


def test_question_that_was_answered_is_nobody_s_any_more(switch, two):
    two[1].ask()
    for question in ("a", "b"):
        says(switch, encode_request(question, "elicitation/create", {}))
    refused = encode_failure("b", {"code": 1, "message": "no"})
    two[1].answer("a")
    assert switch.from_worker(two[1].number, refused, 0.0) == [(SERVER, refused)]
    nameless = b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"no"}}'
    assert switch.from_worker(two[1].number, nameless, 0.0) == [(SERVER, nameless)]

    for question in ("a", "b"):
        assert says(switch, push("notifications/cancelled", requestId=question)) == []


def test_id_of_a_question_is_kept_up_to_its_bound(switch, two):
    two[1].ask()
    names = ["q" * 256, "q" * 257]
    for name in names:
        says(switch, encode_request(name, "elicitation/create", {}))

    assert [bool(says(switch, push("notifications/cancelled", requestId=name))) for name in names] == [True, False]


def test_process_hangs_from_one_second_of_silence_on():
    for now, hangs in ((1.99, False), (2.0, True)):
        switch = Switch(4)
        worker = Worker(switch)
        worker.ask("tools/list", now=1.0)
        switch.leave(worker.number, now)
        assert switch.hangs is hangs


def test_process_hangs_where_a_worker_leaves_without_a_sign_of_life(switch, two):
    for worker in two:
        worker.ask("ping", now=10.0)
    switch.leave(two[0].number, 10.5)
    assert not switch.hangs
    switch.leave(two[1].number, 12.0)
    assert switch.hangs


def test_process_that_answered_something_since_does_not_hang(switch, two):
    two[0].ask("server/discover", now=1.0)
    call, _ = two[0].ask(now=2.0)
    says(switch, answered(call))
    switch.leave(two[0].number, 60.0)

    assert not switch.hangs


def test_line_over_the_bound_is_told_to_who_waits_for_it(switch, two):
    request, _ = two[1].ask()
    out = says(switch, encode_response(request, {"x": "y" * 1000}), bound=500)
    assert [(to, line.split()[0]) for to, line in out] == [(two[1].number, b"L%d" % request)]

    out = says(switch, b"x" * 1000, bound=500)
    assert out == [(two[0].number, b"L-1 1000")]


def test_half_a_batch_is_no_word_of_the_parent(switch, two):
    request, _ = two[1].ask()
    half = b'[{"jsonrpc":"2.0","id":%d,"result":{}}, {' % request

    assert says(switch, half) == [(two[1].number, STRANGE + half)]


def test_batch_is_taken_apart(switch, two):
    requests = [worker.ask()[0] for worker in two]
    batch = b"[" + b",".join(answered(request) for request in requests) + b",7]"

    assert [(to, json.loads(line)["id"]) for to, line in says(switch, batch)] == [
        (worker.number, request) for worker, request in zip(two, requests, strict=True)
    ]


@pytest.mark.parametrize("line", [b"Listening on stdio", b"F", b"R", b'E"x"', b"~{}", b"[[", b"null"])
def test_line_that_is_no_message_is_marked_and_never_a_word_of_ours(switch, two, line):
    assert says(switch, line) == [(two[0].number, b"?" + line)]


@given(
    st.lists(st.binary(max_size=300)), st.lists(st.sampled_from([b'{"id":', b'"method"', b"1099511627777", b"}", b"["]))
)
def test_any_bytes_of_a_process_reach_living_workers_alone(lines, pieces):
    switch = Switch(4)
    workers = [Worker(switch) for _ in range(3)]
    for worker in workers:
        worker.ask()
    switch.leave(workers[1].number, 0.0)
    living = {workers[0].number, workers[2].number}
    for line in (*lines, b"".join(pieces)):
        for to, said in says(switch, line.replace(b"\n", b""), bound=200):
            assert to in living
            assert said[:1] in b"{?L~"
            assert b"\n" not in said


class Model:
    """Two workers and more, and a process that answers when it is told to; says what must be true after each step."""

    def __init__(self, most: int) -> None:
        self.switch = Switch(most)
        self.most = most
        self.workers = [Worker(self.switch), Worker(self.switch)]
        self.asked: dict[int, int] = {}
        """Requests that nobody has answered, and the worker that asked."""
        self.at_server: dict[int, None] = {}
        self.stopped: set[int] = set()

    def join(self, choice: int) -> None:
        self.workers.append(Worker(self.switch))

    def ask(self, choice: int) -> None:
        worker = self.workers[choice % len(self.workers)]
        self.asked[(worker.number << SHIFT) + worker.asked + 1] = worker.number
        self.pass_on(worker.ask()[1])

    def cancel(self, choice: int) -> None:
        worker = self.workers[choice % len(self.workers)]
        if mine := [request for request, owner in self.asked.items() if owner == worker.number]:
            self.pass_on(worker.cancel(mine[choice % len(mine)]))

    def answer(self, choice: int) -> None:
        if self.at_server:
            request = list(self.at_server)[choice % len(self.at_server)]
            del self.at_server[request]
            self.pass_on(says(self.switch, answered(request)))

    def leave(self, choice: int) -> None:
        if len(self.workers) > 1:
            number = self.workers.pop(choice % len(self.workers)).number
            self.asked = {request: owner for request, owner in self.asked.items() if owner != number}
            self.pass_on(self.switch.leave(number, 0.0))
            assert {request for request in self.at_server if request >> SHIFT == number} <= self.stopped

    def pass_on(self, out: list[To]) -> None:
        for to, line in out:
            message = json.loads(line)
            if to != SERVER:
                assert self.asked.pop(message["id"]) == to
            elif "id" in message:
                assert message["id"] not in self.at_server
                self.at_server[message["id"]] = None
            else:
                self.stopped.add(message["params"]["requestId"])

    def check(self) -> None:
        assert len(self.at_server.keys() - self.stopped) <= self.most
        owners = {request >> SHIFT for request in self.at_server}
        hearers = {to for to, _ in says(self.switch, push("notifications/message", level="info", data="x"))}
        living = {worker.number for worker in self.workers}
        assert hearers == (owners & living or living & hearers if len(owners) < 2 and owners <= living else set())


@given(
    st.lists(st.tuples(st.sampled_from(["ask", "ask", "cancel", "answer", "leave", "join"]), st.integers(0, 30))),
    st.integers(1, 3),
)
def test_every_call_is_answered_once_to_who_asked_it_and_what_a_log_message_may_tell_reaches_one_worker(steps, most):
    model = Model(most)
    for step, choice in steps:
        getattr(model, step)(choice)
        model.check()
