"""docs/api-fields.md says which fields of the APIs are served, refused and without effect."""

from pathlib import Path

import pytest

from gateway.app.api_reference import render_page
from gateway.serve.generation.fields import RequestModel
from gateway.serve.messages.message_request import MessagesRequest
from gateway.serve.openai.chat_request import ChatRequest
from gateway.serve.openai.completions import CompletionRequest
from gateway.serve.responses.response_request import ResponsesRequest

PAGE = Path(__file__).parents[3] / "docs" / "api-fields.md"


def test_page_is_what_the_code_writes() -> None:
    command = "python -m gateway.app.api_reference > docs/api-fields.md"

    assert PAGE.read_text(encoding="utf-8") == render_page(), f"docs/api-fields.md is stale: run {command}"


@pytest.mark.parametrize("model", [ChatRequest, ResponsesRequest, MessagesRequest, CompletionRequest])
def test_a_field_is_of_one_class(model: type[RequestModel]) -> None:
    served, refused, hints = model.model_fields.keys(), model.refused.keys(), model.hints

    assert not served & refused
    assert not served & hints
    assert not refused & hints
