"""What a server asks is answered, refused or left unanswered, and never without a bound."""

import asyncio
import json
from typing import Any, cast

import pytest

from gateway.errors import RpcError
from gateway.protocol.messages import INTERNAL_ERROR, Request
from gateway.proxy.transport.transport_interface import MOST, ServerLog, ServerQuestions
from tests.gateway.proxy.transport.kept_log import KeptLog, settled

pytestmark = pytest.mark.anyio


class Server:
    """A server that reads answers, or does not until told."""

    def __init__(self) -> None:
        self.got: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()

    async def send(self, answer: bytes) -> None:
        await self.reads.wait()
        self.got.append(json.loads(answer))


class Person:
    """Answers what is asked once it is told what to say."""

    def __init__(self) -> None:
        self.says = asyncio.Event()
        self.asked_for: list[str] = []
        self.left: list[str] = []

    def notified(self, method: str, params: dict[str, Any]) -> None:
        raise AssertionError

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.asked_for.append(method)
        try:
            await self.says.wait()
        except asyncio.CancelledError:
            self.left.append(method)
            raise
        match params:
            case {"refuse": True}:
                raise RpcError({"code": -1, "message": "no", "data": 7})
            case {"break": True}:
                raise ZeroDivisionError("a secret")
            case _:
                return params


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def person() -> Person:
    return Person()


@pytest.fixture
def questions(server: Server, log: KeptLog) -> ServerQuestions:
    return ServerQuestions(server.send, ServerLog(cast("Any", log)))


def ask(number: int | str, method: str = "roots/list", **params: Any) -> Request:
    return Request(number, method, params)


async def test_ping_is_answered_without_asking_anybody(questions, server, person):
    questions.take(ask(1, "ping"), person)
    await settled()

    assert server.got == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert person.asked_for == []


async def test_result_and_refusal_of_the_client_are_sent_as_they_are(questions, server, person):
    person.says.set()
    questions.take(ask(1, roots=[]), person)
    questions.take(ask("b", refuse=True), person)
    await settled()

    assert server.got == [
        {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}},
        {"jsonrpc": "2.0", "id": "b", "error": {"code": -1, "message": "no", "data": 7}},
    ]


async def test_failure_of_our_own_is_logged_and_the_server_learns_nothing_of_it(questions, server, person, log):
    person.says.set()
    questions.take(ask(1, "a\nb" + "c" * 200, **{"break": True}), person)
    await settled()

    (answer,) = server.got
    assert answer["error"] == {"code": INTERNAL_ERROR, "message": "the gateway failed to answer"}
    (entry,) = log.entries
    assert entry["event"] == "request of upstream could not be answered"
    assert entry["method"].startswith("a\\nbccc")
    assert len(entry["method"]) < 150
    assert entry["exc_info"] is True


async def test_second_question_with_the_id_of_an_open_one_is_refused_and_the_first_is_answered(
    questions, server, person
):
    questions.take(ask(1, roots=[]), person)
    await settled()
    questions.take(ask(1, roots=["other"]), person)
    await settled()
    (refused,) = server.got
    person.says.set()
    await settled()

    assert "already being answered" in refused["error"]["message"]
    assert server.got[1:] == [{"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}]


async def test_id_may_be_used_again_once_its_question_is_answered(questions, server, person):
    person.says.set()
    for n in range(2):
        questions.take(ask(1, n=n), person)
        await settled()

    assert [answer["result"] for answer in server.got] == [{"n": 0}, {"n": 1}]


async def test_one_question_more_than_may_wait_is_refused(questions, server, person):
    for number in range(MOST + 1):
        questions.take(ask(number), person)
    await settled()

    assert len(person.asked_for) == MOST
    (refused,) = server.got
    assert refused["id"] == MOST
    assert refused["error"]["message"] == f"{MOST} requests are already waiting for answers; ask again later"


async def test_question_that_the_server_cancels_is_not_answered(questions, server, person):
    questions.take(ask(1, "a"), person)
    questions.take(ask(2, "b", kept=True), person)
    await settled()
    for cancelled in (1, 3, None, [2]):
        questions.take_back(cancelled)
    await settled()
    person.says.set()
    await settled()

    assert person.left == ["a"]
    assert [answer["id"] for answer in server.got] == [2]


async def test_malformed_request_is_answered_with_the_error_that_it_is(questions, server):
    questions.refuse("x", -32600, "no method")
    await settled()

    assert server.got == [{"jsonrpc": "2.0", "id": "x", "error": {"code": -32600, "message": "no method"}}]


async def test_server_that_reads_no_answers_is_owed_a_bounded_number_of_them(questions, server, person, log):
    server.reads.clear()
    for number in range(66):
        questions.take(ask(number, "ping"), person)
    await settled()
    server.reads.set()
    await settled()
    owed = len(server.got)
    questions.take(ask("later", "ping"), person)
    await settled()

    assert owed == 64
    assert log.entries == [{"event": "request of upstream dropped: it does not read answers", "method": "ping"}] * 2
    assert server.got[-1]["id"] == "later"


async def test_close_asks_nobody_any_longer_and_sends_nothing_more(questions, server, person):
    server.reads.clear()
    questions.take(ask(1, "a"), person)
    questions.take(ask(2, "ping"), person)
    await settled()
    questions.close()
    await settled()
    server.reads.set()
    person.says.set()
    await settled()

    assert person.left == ["a"]
    assert server.got == []
