"""Why an embedded engine ended, from its exit status and what it wrote to stderr.

Turns a status and the last lines of the log into a sentence: the kind of the failure, the one line that tells most, and
what to do. Lines are bounded and hold no control characters. Pure.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from gateway.engine.embedded.model_file import show_bytes
from gateway.escape import escape_text

_LINE: Final = 200
_STAMP: Final = re.compile(r"^[\d.]+ [A-Z] (?:\w+ +)?(?:\w+: )?")
"""What llama.cpp puts before a message: time, level, component, function."""
_MEMORY: Final = re.compile(r"insufficient memory|failed to allocate|out of memory|cannot allocate|bad_alloc", re.I)
_PORT: Final = re.compile(r"couldn't bind|address already in use|bind failed", re.I)
_MODEL: Final = re.compile(
    r"error loading model(?! file)[^:]*: |unknown model architecture|unknown pre-tokenizer", re.I
)
_IMPORT: Final = re.compile(r"^(?:ImportError|ModuleNotFoundError|OSError): ")
_EMPTY: Final = re.compile(r"check the input params|exiting due to|^\s|^Traceback|^$")
"""Lines that say only that it failed."""
_CRASH: Final = "if nobody sent it, llama.cpp crashed; try another model file, or report it to llama.cpp"


@dataclass(frozen=True, slots=True)
class Started:
    """What an engine was started with, as far as it helps to name a failure."""

    model: str
    memory: int | None = None
    """Bytes that it needs, roughly."""
    free: int = 0
    """Bytes that were free."""
    address: str = ""
    """Where it was to listen, if that was fixed."""


def why_ended(status: int, lines: Sequence[str], started: Started, *, was_ready: bool) -> str:
    """The sentence for an engine that ended. `lines`: the last that it wrote."""
    when = "" if was_ready else " while it was starting"
    if status == -signal.SIGKILL:
        killed = f"the embedded engine was killed by signal 9{when}"
        if started.memory is not None and started.memory < started.free:
            return f"{killed}: somebody ended it, or the system did for lack of memory ({_need(started)})"
        return f"{killed}, probably for lack of memory: {_memory(started)}"
    if (line := _telling(lines, _MEMORY)) is not None:
        return f"the embedded engine ran out of memory{when} ({line}): {_memory(started)}"
    if (line := _telling(lines, _PORT)) is not None:
        where = started.address or "its port"
        return f"the embedded engine can't listen on {where} ({line}): stop what listens there, or use another port"
    if (line := _telling(lines, _MODEL)) is not None:
        return f"llama.cpp can't load {started.model!r}: {line}"
    if status < 0:
        return f"the embedded engine was killed by {_signal(-status)}{when}: {_CRASH}"
    line = _telling(lines, _IMPORT) or next((_shown(each) for each in reversed(lines) if not _EMPTY.search(each)), None)
    ended = f"the embedded engine ended with exit status {status}{when}"
    return f"{ended}: {line}" if line else f"{ended} and gave no reason"


def is_about_model(lines: Sequence[str]) -> bool:
    """Whether llama.cpp says that it can't load the model's file, so that another try gives the same."""
    return _telling(lines, _MEMORY) is None and _telling(lines, _MODEL) is not None


def _telling(lines: Sequence[str], pattern: re.Pattern[str]) -> str | None:
    """The first line that matches: later ones repeat what it says."""
    return next((_shown(line) for line in lines if pattern.search(line)), None)


def _shown(line: str) -> str:
    return escape_text(_STAMP.sub("", line).strip().removeprefix("error loading model: "), _LINE)


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _memory(started: Started) -> str:
    need = f"{_need(started)}; " if started.memory is not None else ""
    return f"{need}take a smaller model, lower engine.context, or give the gateway more memory"


def _need(started: Started) -> str:
    needed = "an unknown amount" if started.memory is None else show_bytes(started.memory)
    return f"{started.model!r} with this context needs about {needed}, {show_bytes(started.free)} are free"
