"""JSON-RPC batches, split into their messages.

Only version 2025-03-26 of MCP has batches. Turns a batch from a server into its messages if the version in use has
batches. Otherwise each message is refused: an answer becomes one that can't be used, so that nobody waits for another.
Each message is read as far as possible (`mending.py`). A batch from a client is only split.
"""

import json
from typing import Any, Final, cast

from gateway.protocol.mending import BrokenAnswer, mend_value
from gateway.protocol.messages import INVALID_REQUEST, Failure, Malformed, Message, Request, Response

VERSIONS: Final = frozenset({"2025-03-26"})
MOST: Final = 1024
"""Most messages of a batch: nothing else runs while they are read. No request of ours asks for more answers."""
_NOT_HERE: Final = "a JSON-RPC batch, which MCP {version} does not have: send one message at a time"
_TOO_EARLY: Final = "a JSON-RPC batch before a version of MCP was agreed: send one message at a time"


def read_batch(data: bytes, version: str) -> list[Message | BrokenAnswer | Malformed]:
    """The messages of a batch; empty if the data is not a batch.

    Args:
        version: the agreed version of the protocol; empty: none was agreed yet.
    """
    messages = [mend_value(part) for part in _parts(data)]
    if version in VERSIONS:
        return messages
    why = _NOT_HERE.format(version=version) if version else _TOO_EARLY
    return [_refused(message, why) for message in messages]


def split_batch(data: bytes) -> list[bytes]:
    """The messages of a batch as JSON, regardless of the version; empty if the data is not a batch."""
    return [json.dumps(part).encode() for part in _parts(data)]


def _parts(data: bytes) -> list[dict[str, Any]]:
    if data.lstrip()[:1] != b"[":
        return []
    try:
        parts: list[object] = json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    return [cast("dict[str, Any]", part) for part in parts if isinstance(part, dict)] if len(parts) <= MOST else []


def _refused(message: Message | BrokenAnswer | Malformed, why: str) -> BrokenAnswer | Malformed:
    if isinstance(message, Response | Failure | BrokenAnswer) and type(message.id) is int:
        return BrokenAnswer(message.id, f"its answer came in {why}")
    asked = message.id if isinstance(message, Request | Malformed) else None
    return Malformed(INVALID_REQUEST, f"the message came in {why}", asked)
