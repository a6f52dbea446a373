"""The id of one request, by which its client and the operator can refer to it."""

import secrets


def new_request_id() -> str:
    """A new id for one request. It is the same in the answer's header and in its error."""
    return f"req_{secrets.token_hex(12)}"
