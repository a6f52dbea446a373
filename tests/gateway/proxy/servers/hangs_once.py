"""The first process hangs in its first call, with its pipes open and nothing read; those after it answer."""

import os
import signal
from pathlib import Path
from typing import Any

from transport import answer, note, serve


def on_call(request: dict[str, Any]) -> None:
    if not Path(os.environ["NOTES"]).exists():
        note("hung")
        signal.pause()
    answer(request, {"content": []})


serve(on_call)
