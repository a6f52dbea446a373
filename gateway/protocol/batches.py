"""A JSON-RPC batch, taken apart.

Of the versions of MCP only 2025-03-26 has batches. Turns an array of messages of a server into its messages where the
version in use has them, and else into what becomes of each: an answer is one that can't be used, so that nobody waits
for another. Each message is read as far as it can be read (`mending.py`). One of a client is only split.
"""

import json
from typing import Any, Final, cast

from gateway.protocol.mending import BrokenAnswer, mend_value
from gateway.protocol.messages import INVALID_REQUEST, Failure, Malformed, Message, Request, Response

VERSIONS: Final = frozenset({"2025-03-26"})
MOST: Final = 1024
"""Messages of a batch at most: nothing else happens while they are read. No request of ours calls for more answers."""
_NOT_HERE: Final = "a JSON-RPC batch, which MCP {version} does not have: send one message at a time"
_BEFORE: Final = "before its version was agreed"


def read_batch(data: bytes, version: str) -> list[Message | BrokenAnswer | Malformed]:
    """The messages of a batch; empty where it is none.

    Args:
        version: of the protocol, as it was agreed; empty: it was not yet.
    """
    messages = [mend_value(part) for part in _parts(data)]
    if version in VERSIONS:
        return messages
    why = _NOT_HERE.format(version=version or _BEFORE)
    return [_refused(message, why) for message in messages]


def split_batch(data: bytes) -> list[bytes]:
    """The messages of a batch as JSON, whichever version has them; empty where it is none."""
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
