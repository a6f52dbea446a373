"""An error in the shape of Anthropic's API, and which requests get it.

Turns a status and a sentence into the body that clients of that API read. They distinguish errors by `type` and status,
and quote `request_id` to the operator of the server. Pure. Source: Anthropic's API reference, "Errors".
"""

from typing import Any, Final

from starlette.types import Scope

REQUEST_ID: Final = "request-id"
"""The header that holds the request's id in each answer."""
OVERLOADED: Final = 529
"""The status that Anthropic's API uses in place of 503: try again later."""

_PATH: Final = "/v1/messages"
_VERSION: Final = b"anthropic-version"
_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED: "overloaded_error",
}


def speaks_anthropic(scope: Scope) -> bool:
    """Whether the client reads this shape: by the path, or by the version header, which only such clients send."""
    path = scope["path"]
    return path == _PATH or path.startswith(f"{_PATH}/") or any(name == _VERSION for name, _ in scope["headers"])


def anthropic_error(status: int, message: str, request_id: str) -> tuple[int, dict[str, Any]]:
    """Anthropic's status and body for an error whose ordinary HTTP status is `status`."""
    shown = OVERLOADED if status == 503 else status
    other = "invalid_request_error" if shown < 500 else "api_error"
    error = {"type": _TYPES.get(shown, other), "message": message}
    return shown, {"type": "error", "error": error, "request_id": request_id}
