"""Each error of ours has its status and its code; what is no error of ours says nothing of itself."""

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.errors import (
    ConfigError,
    ContextExceeded,
    EngineRefused,
    EngineUnavailable,
    MapDiffers,
    MapUnknown,
    RequestInvalid,
    TemplateRefused,
    UnknownTool,
)
from gateway.serve.http.errors import error_answer, no_such_path


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (RequestInvalid("x"), 400, "invalid_value"),
        (MapUnknown("x"), 400, "map_unknown"),
        (UnknownTool("x"), 400, "unknown_tool"),
        (TemplateRefused("x"), 400, "template_refused"),
        (MapDiffers("x", sample="", map_ids=[], engine_ids=[]), 503, "map_differs"),
        (EngineUnavailable("x"), 503, "engine_unavailable"),
        (EngineRefused("x", 500), 502, "engine_refused"),
    ],
)
def test_error_has_its_status_and_code(error, status, code):
    answer = error_answer(error)

    assert answer[0] == status
    assert answer[1]["error"]["code"] == code
    assert answer[1]["error"]["message"] == "x"


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
