"""How Anthropic's API writes its streams, its errors, and the arguments of calls in a whole answer."""

import json
import secrets
from dataclasses import dataclass
from functools import partial
from typing import Any

from gateway.errors import ContextExceeded
from gateway.serve.generation.answers import ApiForm, Chunk
from gateway.serve.http.errors import REQUEST_ID, anthropic_error, error_answer


@dataclass(frozen=True, slots=True)
class Verbatim:
    """JSON as the model wrote it, copied into an answer without parsing it: `1000.0` and `1e3` stay as they are."""

    text: str


def form_of(request_id: str) -> ApiForm:
    """The form of the answer to the request with this id."""
    return ApiForm(
        refuse=partial(refused, request_id),
        names_events=True,
        write=written,
        headers={REQUEST_ID: request_id},
    )


def refused(request_id: str, error: Exception) -> tuple[int, Chunk]:
    """The status and the body of an error."""
    status, body = error_answer(error)
    message = body["error"]["message"]
    if isinstance(error, ContextExceeded):
        # Clients recognise by this wording that they have to shorten the conversation.
        message = f"prompt is too long: {error.tokens} tokens > {error.context} maximum; {message}"
    return anthropic_error(status, message, request_id)


def written(chunk: Chunk) -> bytes:
    """The JSON of an answer, with its `Verbatim` parts copied into it unchanged."""
    texts: dict[str, str] = {}

    def keep(part: Any) -> str:
        if not isinstance(part, Verbatim):
            raise TypeError(f"{type(part).__name__} has no place in an answer")
        mark = secrets.token_hex(16)
        texts[mark] = part.text
        return mark

    text = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"), default=keep)
    # Nothing that a model or a tool wrote can contain a mark, which was drawn at random after it was written.
    for mark, part in texts.items():
        text = text.replace(f'"{mark}"', part, 1)
    return text.encode()
