"""Leaves in the middle of a call."""

import os
from typing import Any

from transport import serve


def on_call(_: dict[str, Any]) -> None:
    os._exit(1)


serve(on_call)
