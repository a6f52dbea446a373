"""Requests in flight: what is left of those that nobody waits for, and what a server asks before the first."""

import weakref

import anyio
import pytest

from gateway.proxy.caller import Nobody
from gateway.proxy.transport.transport_interface import PeerError
from gateway.proxy.upstream.session import in_flight
from gateway.proxy.upstream.session.in_flight import FirstQuestions, Requests, Running


@pytest.mark.parametrize("most", [0, 1])
def test_request_that_was_given_up_keeps_nothing_of_its_caller(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The server may never answer it, and a request may be large.
    monkeypatch.setattr(in_flight, "_MOST", most)
    requests, caller = Requests(), Nobody(modern=True)
    request = Running(caller, requests, lambda *_: None)
    requests.begin(request)
    left = weakref.ref(caller)
    del caller

    request.given_up()

    assert left() is None
    assert len(requests.given_up) == most


class Asks:
    """A session whose server asks something when it answers the first pings."""

    def __init__(self, *questions: int) -> None:
        self.questions = FirstQuestions()
        self.pings = 0
        self._left = list(questions)

    async def ping(self) -> None:
        self.pings += 1
        if self._left and (count := self._left.pop(0)):
            for number in range(count):
                with self.questions.one():
                    self.questions.note("roots/list", {"roots": [number]})
        raise PeerError({"code": -32601, "message": "no such method"})


@pytest.mark.parametrize(("questions", "pings"), [((), 2), ((1,), 3), ((0, 1), 4), ((1, 1, 0, 1), 6)])
@pytest.mark.anyio
async def test_server_has_had_its_say_after_two_pings_without_a_question(
    questions: tuple[int, ...], pings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "_USE", 0.0)
    session = Asks(*questions)
    await in_flight.until_answered(session, frozenset({"roots"}))

    assert session.pings == pings


@pytest.mark.anyio
async def test_server_that_was_announced_no_roots_is_not_waited_for() -> None:
    session = Asks(1)
    await in_flight.until_answered(session, frozenset({"elicitation"}))

    assert session.pings == 0


@pytest.mark.parametrize("waits_for", ["ping", "answer"])
@pytest.mark.anyio
async def test_call_does_not_wait_for_ever_for_what_a_server_asks_first(
    waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_flight, "MOST", 0.01)
    session = Asks()

    async def hang() -> None:
        await anyio.sleep_forever()

    if waits_for == "ping":
        monkeypatch.setattr(session, "ping", hang)
    with anyio.fail_after(30), session.questions.one():
        await in_flight.until_answered(session, frozenset({"roots"}))


def test_same_answer_as_before_is_no_new_one() -> None:
    questions = FirstQuestions()
    for method, answer in (("a", 1), ("a", 1), ("b", 1), ("a", 1), ("a", 2)):
        questions.note(method, answer)

    assert questions.new_answers == 4


def test_after_more_given_up_requests_than_are_remembered_nobody_gets_what_names_no_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(in_flight, "_MOST", 1)
    requests = Requests()
    gone = [Running(Nobody(modern=True), requests, lambda *_: None) for _ in range(2)]
    for each in gone:
        requests.begin(each)
        each.given_up()
        requests.running.discard(each)
        # That it is no longer running is known: it can't be given up again.
        each.given_up()
    for each in gone:
        each.answered()
    caller = Nobody(modern=True)
    requests.begin(Running(caller, requests, lambda *_: None))

    assert not requests.given_up
    assert requests.only_caller() is None
