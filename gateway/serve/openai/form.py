"""How the OpenAI API writes its streams and its errors."""

from dataclasses import replace
from typing import Final

from gateway.serve.generation.form import ApiForm, Chunk, Reply
from gateway.serve.http.errors import error_answer
from gateway.serve.http.request_id import new_request_id
from gateway.toolcalls import Content

OPENAI: Final = ApiForm(error_answer, last=b"data: [DONE]\n\n")


class OpenAiReply:
    """A reply in one of OpenAI's older shapes."""

    def fail(self, error: Exception) -> list[Chunk]:
        """The chunk that ends a stream which broke."""
        return [error_answer(error)[1]]


def openai_form() -> ApiForm:
    """Give the form of one answer, whose request gets an id."""
    return replace(OPENAI, headers={"x-request-id": new_request_id()})


def event_bytes(reply: Reply) -> int:
    """Bytes of the event in which this reply shows one text, without the text. It is a reply of no use afterwards."""
    return len(OPENAI.events(reply.feed(Content(""))))
