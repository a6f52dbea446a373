"""What answers mean that came over HTTP: which hold a result, and what is said of those that do not."""

import json
from typing import Any, cast

import pytest

from gateway.http1.connection import Connection
from gateway.protocol.lines import LongEvent, LongLine
from gateway.proxy.transport.http.http_answers import (
    ACCEPTED,
    EVENTS,
    JSON,
    answer_type,
    read_json,
    read_refusal,
    why_given_up,
)
from gateway.proxy.transport.transport_interface import LinkLost, MaybeForgotten, NoAnswer, PeerError, Unfit
from tests.cases import each_of

pytestmark = pytest.mark.anyio
VERSION = "2025-11-25"


class Answer:
    """A whole answer, as a connection gives it."""

    def __init__(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.status = status
        self._body = body
        self._headers = {name.replace("_", "-"): text for name, text in headers.items()}

    def header(self, name: str) -> str:
        return self._headers.get(name, "")

    async def read(self, bound: int) -> bytes | None:
        return None if len(self._body) > bound else self._body


def whole(status: int, body: bytes = b"", **headers: str) -> Connection:
    return cast("Connection", Answer(status, body, **headers))


def message(number: object, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, **more}).encode()


@each_of(
    ("status", "headers", "kind"),
    [
        (200, {"content_type": "application/json; charset=utf-8"}, JSON),
        (200, {"content_type": "text/event-stream"}, EVENTS),
        (200, {"content_type": "text/event-stream, text/event-stream"}, EVENTS),
        (200, {"content_type": "application/vnd.x+json"}, JSON),
        (200, {"content_type": "text/plain"}, JSON),
        (200, {}, JSON),
        (200, {"content_length": "0"}, ""),
        (204, {}, ""),
        (299, {"content_type": JSON}, JSON),
        (200, {"content_type": "text/html"}, ""),
        (199, {"content_type": JSON}, ""),
        (300, {"content_type": JSON}, ""),
    ],
)
def test_any_success_of_a_type_that_json_is_sent_under_may_hold_an_answer(status, headers, kind):
    assert answer_type(whole(status, **headers)) == kind


async def test_result_is_found_alone_or_among_others_and_its_number_may_be_spelled_as_text():
    alone = message(3, result={"it": 1})
    batch = b"[%s,%s]" % (message(2, result={}), alone)
    for body in (alone, batch, message("3", result={"it": 1})):
        assert await read_json(whole(200, body), 3, len(body), VERSION if body != batch else "2025-03-26") == {"it": 1}


@each_of(
    ("status", "body", "failure", "words"),
    [
        (200, message(3, result={"it": "x" * 100}), Unfit, "its answer of more than 100 bytes is over the limit"),
        (202, b" \n", NoAnswer, ACCEPTED),
        (200, message(3, error={"code": 5, "message": "so"}), PeerError, "so"),
        (200, message(None, error={"code": 5, "message": "so"}), PeerError, "so"),
        (200, message(4, result={}), NoAnswer, "its answer is not a response to this request"),
        (200, message(3, method="ping"), NoAnswer, "its answer is not a response to this request"),
        (200, b"x", NoAnswer, "its answer is not a JSON-RPC response: "),
    ],
)
async def test_body_without_the_result_says_why(status, body, failure, words):
    with pytest.raises(failure) as raised:
        await read_json(whole(status, body), 3, 100, VERSION)

    assert type(raised.value) is failure
    assert str(raised.value).startswith(words.removesuffix("(HTTP 202)") if status == 202 else words)


@each_of("status", [301, 302, 303, 307, 308])
@each_of(("location", "words"), [("/n\x1bew", r"to '/n\\x1bew'"), ("", "without saying where")])
async def test_redirect_says_where_it_leads(status, location, words):
    refusal = await read_refusal(whole(status, location=location), in_session=False)

    assert type(refusal) is NoAnswer
    assert str(refusal).startswith(f"it redirects {words} (HTTP {status} ")


@each_of(("status", "forgotten"), [(399, False), (400, True), (404, True), (499, True), (500, False), (503, True)])
async def test_refusal_that_speaks_of_the_session_may_mean_that_it_is_forgotten(status, forgotten):
    refusal = whole(status, b"Session not found", content_type="text/plain")

    assert isinstance(await read_refusal(refusal, in_session=True), MaybeForgotten) is forgotten
    assert not isinstance(await read_refusal(refusal, in_session=False), MaybeForgotten)


@each_of(
    ("status", "kind", "body", "words"),
    [
        (401, "text/plain", b"go away", "HTTP 401 Unauthorized: it asks for credentials: set "),
        (403, "text/plain", b"go away", "HTTP 403 Forbidden: it forbids the request: check "),
        (404, "text/plain", b" gone\n", "HTTP 404 Not Found (gone): check the `url` of this server"),
        (406, "", b"", "HTTP 406 Not Acceptable: check that the `url` "),
        (418, "text/html", b"<p>", "HTTP 418 I'm a Teapot"),
        (500, JSON, b'{"a": 1}', 'HTTP 500 Internal Server Error ({"a": 1})'),
        (500, "text/plain", b"why" + b" " * 60_000, "HTTP 500 Internal Server Error (why)"),
        (500, "text/plain", b"x" * 70_000, "HTTP 500 Internal Server Error"),
        (200, "text/html", b"<p>", f"its answer is of type 'text/html'; expected {JSON} or {EVENTS}: check the `url` "),
        (202, "", b"", ACCEPTED),
    ],
)
async def test_refusal_says_what_came_and_what_to_do(status, kind, body, words):
    refusal = await read_refusal(whole(status, body, content_type=kind), in_session=False)

    assert type(refusal) is NoAnswer
    assert str(refusal) == words or (words[-1] == " " and str(refusal).startswith(words))


async def test_refusal_in_the_words_of_json_rpc_is_the_servers_own_error():
    body = message(1, error={"code": -32000, "message": "busy", "data": [1]})
    refusal = await read_refusal(whole(400, body, content_type=JSON), in_session=False)
    as_text = await read_refusal(whole(400, body, content_type="text/plain"), in_session=False)

    assert isinstance(refusal, PeerError)
    assert refusal.error == {"code": -32000, "message": "busy", "data": [1]}
    assert type(as_text) is NoAnswer


async def test_refusal_whose_body_breaks_off_is_named_by_its_status():
    class Broken(Answer):
        async def read(self, bound: int) -> bytes | None:
            raise LinkLost("it broke off")

    refusal = await read_refusal(cast("Connection", Broken(502)), in_session=True)

    assert (type(refusal), str(refusal)) == (NoAnswer, "HTTP 502 Bad Gateway")


CALL = b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"x":"'
RESULT = b'{"jsonrpc":"2.0","id":7,"result":{"x":"'


@pytest.mark.parametrize(
    ("head", "length", "ended", "waiting", "words"),
    [
        (RESULT, 101, True, True, "its answer of more than 100 bytes is over the limit"),
        (CALL, 101, True, True, None),
        (RESULT, 101, True, False, None),
        (CALL, 200, False, True, None),
        (CALL, 201, False, True, "it sent a message of more than 200 bytes (limits.result_bytes is 100)"),
        (CALL, 201, True, True, None),
    ],
)
def test_stream_is_given_up_at_an_answer_over_the_bound_or_at_a_message_without_an_end(
    head, length, ended, waiting, words
):
    unfit = why_given_up(LongEvent(LongLine(head, b"", length), ended=ended), 100, waiting=waiting)

    assert (None if unfit is None else str(unfit).startswith(str(words))) is (None if words is None else True)
