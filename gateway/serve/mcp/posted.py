"""What one POST of a client of the handshake era says: one message, or the messages of a batch.

Turns a body into the requests to be run and what else is told. Of the versions only 2025-03-26 has batches
(`protocol/batches.py`); a batch of which a message can't be read is refused as a whole. It knows no session.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gateway.protocol.batches import VERSIONS, split_batch
from gateway.protocol.messages import Failure, Malformed, Message, Notification, Request, Response, parse_message


class Posted(NamedTuple):
    """The messages of a POST."""

    requests: Sequence[Request] = ()
    told: Sequence[Notification | Response | Failure] = ()
    fault: Malformed | None = None
    """The message that can't be read."""
    is_batch: bool = False


def read_posted(body: bytes, version: str) -> Posted:
    """Read a body. `version`: of its session; empty where it names none."""
    parts = split_batch(body) if version in VERSIONS else None
    if not parts:
        return _one(parse_message(body))
    each = [_one(parse_message(part)) for part in parts]
    return Posted(
        [request for one in each for request in one.requests],
        [told for one in each for told in one.told],
        next((one.fault for one in each if one.fault is not None), None),
        is_batch=True,
    )


def _one(message: Message | Malformed) -> Posted:
    if isinstance(message, Request):
        return Posted((message,))
    return Posted(fault=message) if isinstance(message, Malformed) else Posted(told=(message,))
