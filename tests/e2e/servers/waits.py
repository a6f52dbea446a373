"""Answers a call of `say` with the next line that is written into the named pipe of the environment variable GATE."""

import os
from functools import cache
from typing import Any, TextIO

from transport import answer, serve


@cache
def gate() -> TextIO:
    """The pipe, open for good: a writer never meets a reader that is just leaving. Opened by the first call."""
    # For writing too, or the first writer that leaves would end it.
    return os.fdopen(os.open(os.environ["GATE"], os.O_RDWR))


def answer_later(request: dict[str, Any]) -> None:
    text = gate().readline().removesuffix("\n")
    answer(request, {"content": [{"type": "text", "text": text}]})


serve(answer_later)
