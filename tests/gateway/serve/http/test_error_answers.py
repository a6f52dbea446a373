"""Each error of ours has its status and its code; what is no error of ours says nothing of itself."""

import json

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import (
    ConfigError,
    ContextExceeded,
    EngineLost,
    EngineRefused,
    EngineUnavailable,
    MapDiffers,
    MapUnknown,
    ModelUnknown,
    NotAnswered,
    ReplicaBusy,
    RequestInvalid,
    TemplateRefused,
    UnknownTool,
)
from gateway.serve.http.error_answers import ReplicaAnswer, error_answer, error_response, no_such_path, replay_body
from gateway.serve.http.request_parts import BodyOverLimit, BodyUnread
from tests.cases import each_of


@each_of(
    ("error", "status", "code"),
    [
        (RequestInvalid("x"), 400, "invalid_value"),
        (ModelUnknown("x"), 404, "model_not_found"),
        (BodyUnread("x"), 415, "unsupported_media_type"),
        (MapUnknown("x"), 400, "map_unknown"),
        (UnknownTool("x"), 400, "unknown_tool"),
        (TemplateRefused("x"), 400, "template_refused"),
        (MapDiffers("x", sample="", map_ids=[], engine_ids=[]), 503, "map_differs"),
        (EngineUnavailable("x"), 503, "engine_unavailable"),
        (EngineRefused("x", 500), 502, "engine_refused"),
        (EngineLost("x"), 503, "engine_lost"),
        (ReplicaBusy("x"), 503, "replica_busy"),
        (NotAnswered("x"), 503, "replica_lost"),
    ],
)
def test_error_has_its_status_and_code(error, status, code):
    answer = error_answer(error)

    assert answer[0] == status
    assert answer[1]["error"]["code"] == code
    assert answer[1]["error"]["message"] == "x"


def test_body_over_the_limit_has_a_status_of_its_own_and_names_the_setting():
    status, body = error_answer(BodyOverLimit(1000))

    assert (status, body["error"]["code"]) == (413, "body_too_large")
    assert "1000 bytes (limits.body_bytes)" in body["error"]["message"]


def test_field_at_fault_is_named():
    assert error_answer(RequestInvalid("x", param="n"))[1]["error"]["param"] == "n"
    assert error_answer(RequestInvalid("x"))[1]["error"]["param"] is None


@pytest.mark.parametrize("error", [RuntimeError("secret: hunter2"), ConfigError("path /home/me")])
def test_unforeseen_error_tells_the_log_and_not_the_client(error, caplog):
    status, body = error_answer(error)

    assert status == 500
    assert body["error"]["code"] == "internal_error"
    assert str(error) not in str(body)
    assert "request failed" in caplog.text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v1/nope", 404, "GET /v1/nope is not served here; see /v1/chat/completions"),
        ("/v1/known", 405, "/v1/known does not take GET: send POST"),
    ],
)
async def test_path_or_method_that_there_is_not_is_named_in_the_same_shape(path, status, words):
    async def known(_request: Request) -> Response:
        return Response()

    app = Starlette(
        routes=[Route("/v1/known", known, methods=["POST"])],
        exception_handlers={404: no_such_path, 405: no_such_path},
    )
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://here") as client:
        answer = await client.get(path)

    assert answer.status_code == status
    assert answer.json()["error"]["message"].startswith(words)
    assert ("allow" in answer.headers) == (status == 405)
    assert answer.json()["error"]["code"] == "not_found"


def test_conversation_that_does_not_fit_has_the_code_by_which_clients_know_that_they_must_shorten_it():
    status, body = error_answer(ContextExceeded("the conversation has 9 tokens", 9, 8))

    assert (status, body["error"]["code"], body["error"]["param"]) == (400, "context_length_exceeded", "messages")


async def sent_by(answer, path="/v1/chat/completions", headers=()):
    """Status, headers and body of an answer."""
    messages = []

    async def send(message):
        messages.append(message)

    await answer({"type": "http", "path": path, "headers": list(headers)}, None, send)
    head = {name.decode(): value.decode() for name, value in messages[0]["headers"]}
    return messages[0]["status"], head, json.loads(messages[1]["body"])


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("status", "kind"), [(400, "invalid_request_error"), (499, "invalid_request_error"), (500, "server_error")]
)
async def test_refusal_blames_the_request_below_status_500_and_the_server_from_there_on(status, kind):
    answer = await sent_by(error_response(status, "no", code="why", headers={"Retry-After": "2"}))

    assert (answer[0], answer[1]["retry-after"]) == (status, "2")
    assert answer[2] == {"error": {"message": "no", "type": kind, "param": None, "code": "why"}}


@pytest.mark.anyio
@each_of(
    ("status", "shown", "kind"),
    [
        (400, 400, "invalid_request_error"),
        (401, 401, "authentication_error"),
        (403, 403, "permission_error"),
        (404, 404, "not_found_error"),
        (413, 413, "request_too_large"),
        (429, 429, "rate_limit_error"),
        (499, 499, "invalid_request_error"),
        (500, 500, "api_error"),
        (503, 529, "overloaded_error"),
    ],
)
async def test_refusal_of_a_message_has_the_shape_of_anthropic(status, shown, kind):
    answer = await sent_by(error_response(status, "no", code="why"), "/v1/messages")

    assert answer[0] == shown
    assert answer[2]["type"] == "error"
    assert answer[2]["error"] == {"type": kind, "message": "no"}
    assert answer[2]["request_id"] == answer[1]["request-id"]
    assert answer[2]["request_id"].startswith("req_")


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "headers", "anthropic"),
    [
        ("/v1/messages/count_tokens", (), True),
        ("/v1/messagesx", (), False),
        ("/v1/models", (), False),
        ("/v1/models", ((b"accept", b"*/*"), (b"anthropic-version", b"2023-06-01")), True),
    ],
)
async def test_path_or_version_header_says_who_reads_the_shape_of_anthropic(path, headers, anthropic):
    _, _, body = await sent_by(error_response(400, "no", code="why"), path, headers)

    assert (body.get("type") == "error") == anthropic


@pytest.mark.anyio
async def test_body_that_was_read_can_be_read_once_more_with_its_plain_length_and_then_the_client_is_heard():
    async def receive():
        return {"type": "http.disconnect"}

    old = [(b"Content-Length", b"3"), (b"content-encoding", b"gzip"), (b"host", b"x")]
    scope = {"type": "http", "path": "/", "headers": old}
    replayed, read = replay_body(scope, receive, b"plain")

    assert replayed == {"type": "http", "path": "/", "headers": [(b"host", b"x"), (b"content-length", b"5")]}
    assert await read() == {"type": "http.request", "body": b"plain"}
    assert await read() == {"type": "http.disconnect"}
    assert scope["headers"] is old


class Replicas:
    """The other replica: it sends two events in three parts, and then breaks off; or it does not answer at all."""

    def __init__(self, answers=True):
        self.answers = answers

    async def forward(self, owner, scope, receive, send, broken):
        if not self.answers:
            raise NotAnswered("gone")
        assert owner == "other"
        asked = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": scope["headers"]})
        for part in (b"a\n\nb", asked, b"\n\n"):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": broken(NotAnswered("broke off"))})


async def answered_by(replicas, body):
    """The messages of the answer to a request that is sent on, with this body if it was read."""
    messages = []

    async def receive():
        return {"type": "http.request", "body": b"unread"}

    async def send(message):
        messages.append(message)

    async def unanswered(error):
        return error_response(503, str(error), code="replica_lost")

    answer = ReplicaAnswer(
        replicas, "other", body, unanswered=unanswered, broken=lambda error, events: f"{error} {events}".encode()
    )
    await answer({"type": "http", "path": "/", "headers": [(b"content-length", b"9")]}, receive, send)
    return messages


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "asked", "length"), [(None, b"unread", b"9"), (b"read", b"read", b"4"), (b"", b"", b"0")]
)
async def test_answer_of_another_replica_passes_and_its_break_says_how_many_events_came_before(body, asked, length):
    start, *parts = await answered_by(Replicas(), body)

    assert start["headers"] == [(b"content-length", length)]
    assert b"".join(part["body"] for part in parts) == b"a\n\nb" + asked + b"\n\nbroke off 2"


@pytest.mark.anyio
async def test_replica_that_does_not_answer_leaves_the_answer_to_us():
    start, part = await answered_by(Replicas(answers=False), None)

    assert start["status"] == 503
    assert json.loads(part["body"])["error"]["message"] == "gone"
