"""How the Responses API writes its streams and its errors."""

from typing import Any, Final

from gateway.errors import RequestInvalid
from gateway.serve.generation.answers import ApiForm
from gateway.serve.http.errors import error_answer


class NotStored(RequestInvalid):
    """An id that names nothing kept for this caller: unknown, gone or somebody else's; the error does not say which."""

    def __init__(self, message: str, code: str, param: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code


def refused(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and the body of an error."""
    status, body = error_answer(error)
    if isinstance(error, NotStored):
        return 404, {"error": {**body["error"], "code": error.code}}
    if body["error"]["param"] == "messages":
        # The agent calls the conversation `messages`; in this API it is `input`.
        return status, {"error": {**body["error"], "param": "input"}}
    return status, body


def broken_off(error: Exception, events: int) -> bytes:
    """The event that ends a stream which broke off after `events` events, where the response so far is not known."""
    said = refused(error)[1]["error"]
    told = {"type": "error", "code": "server_error", "message": said["message"], "param": None}
    return RESPONSES.events([{**told, "sequence_number": events}])


RESPONSES: Final = ApiForm(refused, names_events=True)
