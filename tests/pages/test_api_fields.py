"""docs/api-fields.md says which fields of the APIs are served, refused and without effect."""

import pytest

from gateway.serve.generation.request_fields import RequestModel
from gateway.serve.messages.message_request import MessagesRequest
from gateway.serve.openai.chat import ChatRequest
from gateway.serve.openai.completions import CompletionRequest
from gateway.serve.responses.response_request import ResponsesRequest


@pytest.mark.parametrize("model", [ChatRequest, ResponsesRequest, MessagesRequest, CompletionRequest])
def test_a_field_is_of_one_class(model: type[RequestModel]) -> None:
    served, refused, hints = model.model_fields.keys(), model.refused.keys(), model.hints

    assert not served & refused
    assert not served & hints
    assert not refused & hints
