"""The name of one request, by which its client and the operator speak of it."""

import secrets


def new_request_id() -> str:
    """A name for one request, the same in its header and in its error."""
    return f"req_{secrets.token_hex(12)}"
