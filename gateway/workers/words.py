"""What a parent and a worker say to each other on the socket between them: lines.

The parent says one of `ORDERS`. A worker says once that it is ready, or why it can't be. No IO.
"""

import json
from typing import Final, Literal

from gateway.errors import ConfigError, GatewayError
from gateway.observe.escape import cut_text

Order = Literal["drain", "end", "reload"]
ORDERS: Final[dict[bytes, Order]] = {b"drain\n": "drain", b"end\n": "end", b"reload\n": "reload"}
_LONGEST: Final = 4000
"""Characters of a reason."""
READY: Final = b"ready\n"


def order_line(order: Order) -> bytes:
    """As it is sent."""
    return f"{order}\n".encode()


def failure_line(error: GatewayError) -> bytes:
    """Why a worker ends."""
    said = {"failed": cut_text(error.message, _LONGEST), "config": isinstance(error, ConfigError)}
    return json.dumps(said).encode() + b"\n"


def fault_of(line: bytes) -> GatewayError | None:
    """What a worker's first line means: None where it is ready. A line without its end: it ended in between."""
    if line == READY:
        return None
    if not line.endswith(b"\n"):
        return GatewayError("it ended before it was ready")
    said = json.loads(line)
    return ConfigError(said["failed"]) if said["config"] else GatewayError(said["failed"])
