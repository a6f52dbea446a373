"""The answer to a request that could not be read, as bytes: a status and a sentence; the connection then ends.

Requests that were read are answered in the shapes of `errors.py`.
"""

from http import HTTPStatus


def plain_answer(status: int, words: str) -> bytes:
    """A complete HTTP/1.1 answer."""
    body = words.encode()
    lines = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        "content-type: text/plain; charset=utf-8",
        f"content-length: {len(body)}",
        "connection: close",
    )
    return "\r\n".join((*lines, "", "")).encode() + body
