"""What a parent and a worker say to each other on the socket between them, line by line.

The parent sends one of `ORDERS`. A worker says once that it is ready, or why it can't be. No IO.
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
    """The line for an order."""
    return f"{order}\n".encode()


def failure_line(error: GatewayError) -> bytes:
    """The line for the reason why a worker ends."""
    said = {"failed": cut_text(error.message, _LONGEST), "config": isinstance(error, ConfigError)}
    return json.dumps(said).encode() + b"\n"


def fault_of(line: bytes) -> GatewayError | None:
    """The error that a worker's first line reports; None: it is ready. If the line has no end, the worker has ended."""
    if line == READY:
        return None
    if not line.endswith(b"\n"):
        return GatewayError("it ended before it was ready")
    said = json.loads(line)
    return ConfigError(said["failed"]) if said["config"] else GatewayError(said["failed"])
