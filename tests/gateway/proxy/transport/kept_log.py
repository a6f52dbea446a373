"""What tests of a conversation without a server look at: what is logged, once all that can go on has done so."""

from typing import Any

import anyio.lowlevel


class KeptLog:
    """Keeps what is logged."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.entries.append({"event": event, **fields})

    info = debug = warning


async def settled() -> None:
    """Everything that can go on without the other side has done so, and tasks that ended are forgotten."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
