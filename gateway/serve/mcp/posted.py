"""What one POST of a client of the handshake era says: one message, or the messages of a batch.

Turns a body into the requests to be run and what else is told. Of the versions only 2025-03-26 has batches
(`protocol/batches.py`); a batch of which a message can't be read is refused as a whole. It knows no session.
"""

from dataclasses import dataclass

from gateway.protocol.batches import VERSIONS, split_batch
from gateway.protocol.messages import Failure, Malformed, Notification, Request, Response, parse_message


@dataclass(frozen=True, slots=True)
class Posted:
    """The messages of a POST."""

    requests: list[Request]
    told: list[Notification | Response | Failure]
    fault: Malformed | None
    """The message that can't be read."""
    is_batch: bool


def read_posted(body: bytes, version: str) -> Posted:
    """Read a body. `version`: of its session; empty where it names none."""
    parts = split_batch(body) if version in VERSIONS else []
    messages = [parse_message(part) for part in parts or [body]]
    requests = [message for message in messages if isinstance(message, Request)]
    told = [message for message in messages if not isinstance(message, Request | Malformed)]
    fault = next((message for message in messages if isinstance(message, Malformed)), None)
    return Posted(requests, told, fault, bool(parts))
