"""Counts its calls, whoever makes them, and says which process it is."""

import os
from typing import Any

from transport import answer, serve

counted: list[int] = []


def count(request: dict[str, Any]) -> None:
    counted.append(request["id"])
    answer(request, {"content": [{"type": "text", "text": f"{len(counted)} {os.getpid()}"}]})


serve(count)
