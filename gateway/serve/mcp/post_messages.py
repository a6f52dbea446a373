"""The content of one POST from a client of the handshake era: one message, or the messages of a batch.

Turns a body into the requests to run and the messages that need no answer. Only version 2025-03-26 has batches
(`protocol/batches.py`); a batch with an unreadable message is refused as a whole. It knows no session.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.protocol.batches import VERSIONS, split_batch
from gateway.protocol.messages import Failure, Malformed, Message, Notification, Request, Response, parse_message


class PostMessages(NamedTuple):
    """The messages of a POST."""

    requests: Sequence[Request] = ()
    one_way: Sequence[Notification | Response | Failure] = ()
    """The messages that need no answer."""
    fault: Malformed | None = None
    """The first message that can't be read; None: all can."""
    is_batch: bool = False


def read_post(body: bytes, version: str) -> PostMessages:
    """Read a body. `version`: its session's; empty if the request names no session."""
    parts = split_batch(body) if version in VERSIONS else None
    if not parts:
        return _one(parse_message(body))
    each = [_one(parse_message(part)) for part in parts]
    return PostMessages(
        [request for one in each for request in one.requests],
        [message for one in each for message in one.one_way],
        next((one.fault for one in each if one.fault is not None), None),
        is_batch=True,
    )


def _one(message: Message | Malformed) -> PostMessages:
    if isinstance(message, Request):
        return PostMessages((message,))
    return PostMessages(fault=message) if isinstance(message, Malformed) else PostMessages(one_way=(message,))
