"""How the OpenAI API writes its streams and its errors."""

from dataclasses import replace
from typing import Final

from gateway.serve.generation.form import ApiForm, Chunk, Reply
from gateway.serve.http.errors import error_answer
from gateway.serve.http.request_id import new_request_id
from gateway.toolcalls import Content

OPENAI: Final = ApiForm(error_answer, last=b"data: [DONE]\n\n")


class OpenAiReply:
    """What replies in OpenAI's older shapes (completions, chat completions) share."""

    def fail(self, error: Exception) -> list[Chunk]:
        """The chunk that ends a stream after an error."""
        return [error_answer(error)[1]]


def openai_form() -> ApiForm:
    """Return the form of one answer, with a new request id."""
    return replace(OPENAI, headers={"x-request-id": new_request_id()})


def event_bytes(reply: Reply) -> int:
    """How many bytes this reply's event for a text has besides the text. The reply can't be used afterwards."""
    return len(OPENAI.events(reply.feed(Content(""))))
