"""Answers a call of `say` when somebody has written into the named pipe of the environment variable GATE."""

import os
from pathlib import Path
from typing import Any

from transport import answer, serve


def answer_later(request: dict[str, Any]) -> None:
    text = Path(os.environ["GATE"]).read_text()
    answer(request, {"content": [{"type": "text", "text": text}]})


serve(answer_later)
