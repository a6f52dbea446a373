"""What a worker and the parent that runs a server for it say to each other besides the server's own lines.

A worker greets with one JSON line that says what is to run; from then on its lines are what it would have written to
the process. The parent's lines are those of the process where they begin with a brace, and words of its own else: no
line of a server can be taken for one, since the parent looks at how each begins. No IO.
"""

import json
from dataclasses import asdict, dataclass, field
from typing import Final

from pydantic import TypeAdapter

from gateway.config.model import UpstreamConfig

WELCOME: Final = b"W"
"""The process runs; behind it the number from which on the requests of this connection are to count."""
REFUSED: Final = b"X"
"""The process does not start; behind it why, as JSON: number, words and file of the operating system's error."""
ENDED: Final = b"E"
"""The process is of no use any more; behind it a sentence as JSON."""
FULL: Final = b"F"
"""The process does not read: nothing more is to be written until `ROOM`."""
ROOM: Final = b"R"
LONG: Final = b"L"
"""A line over the bound came and is left out; behind it the request that it answered, or -1, and its length."""
SHARED: Final = b"~"
"""Behind it a question of the server that may belong to callers of several workers, as it came."""
STRANGE: Final = b"?"
"""Behind it a line that is no message, as it came."""
MESSAGE: Final = b"{"
"""How a line of the server begins that is passed on as it came."""

SHIFT: Final = 40
"""Each connection counts its requests and tokens of progress from its number shifted by this: JavaScript, too, knows
whole numbers up to 2 ** 53."""
MOST_CONNECTIONS: Final = (1 << 53 - SHIFT) - 1
"""Numbers of connections that one process can tell apart in its life."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a worker wants to talk to."""

    server: str
    command: str
    args: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str | None
    shared: bool
    """Whether every worker that wants the same is to have the same process, or this one its own."""
    line_bound: int
    """Longest line of the process that is passed on, in bytes."""
    concurrency: int
    """Calls of clients that the process gets at a time; more wait."""
    samples: bool
    """Whether it is told that it may ask for generations."""

    @staticmethod
    def by(config: UpstreamConfig, *, shared: bool, line_bound: int) -> "Wanted":
        """What these settings mean."""
        cwd = None if config.cwd is None else str(config.cwd)
        program = (config.name, config.command or "", config.args, dict(config.env), cwd)
        return Wanted(*program, shared, line_bound, config.concurrency, config.sampling_tokens > 0)

    def as_line(self) -> bytes:
        """It as one line; equal ones are equal as lines."""
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "Wanted":
        """What `as_line` gave. Raises `ValueError` for anything else."""
        return TypeAdapter(Wanted).validate_json(line)


def refusal(error: OSError) -> bytes:
    """Why the process does not start."""
    return REFUSED + json.dumps([error.errno, error.strerror or str(error), error.filename]).encode()


def refused(why: bytes) -> OSError:
    """What `refusal` was made of; `why`: what stands behind the word."""
    number, words, name = json.loads(why)
    return OSError(words) if number is None else OSError(number, words, name)


def ending(cause: str) -> bytes:
    """That the process is of no use any more."""
    return ENDED + json.dumps(cause).encode()


def long_line(number: int | None, length: int) -> bytes:
    """That a line was left out."""
    return b"%b%d %d" % (LONG, -1 if number is None else number, length)
