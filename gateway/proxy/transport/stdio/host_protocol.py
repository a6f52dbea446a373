"""The lines between a worker and its parent, which runs a server for it, besides the server's own.

A worker first sends one JSON line that says what is to run; from then on its lines are what it would have written to
the process. The parent's lines are the process's own if they begin with a brace, and else notices of the parent. No
line of a server can be mistaken for a notice, since the parent checks how each line begins. No IO.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from pydantic import TypeAdapter

from gateway.config.model import UpstreamConfig
from gateway.config.programs import inherited

WELCOME: Final = b"W"
"""The process runs. Followed by the number from which the requests of this connection must be numbered."""
REFUSED: Final = b"X"
"""The process does not start. Followed by the operating system's error as JSON: number, text and file."""
ENDED: Final = b"E"
"""The process can't be used any more. Followed by the cause, as a JSON string."""
FULL: Final = b"F"
"""The process does not read: nothing more may be written until `ROOM`."""
ROOM: Final = b"R"
LONG: Final = b"L"
"""A line over the bound was dropped. Followed by the request that it answered, or -1, and its length in bytes."""
SHARED: Final = b"~"
"""Followed by a question of the server, as it came, that may be for callers of several workers."""
STRANGE: Final = b"?"
"""Followed by a line that is not a message, as it came."""
MESSAGE: Final = b"{"
"""The first byte of a line of the server that is passed on as it came."""

SHIFT: Final = 40
"""Each connection numbers its requests and progress tokens from its own number, shifted left by this many bits:
JavaScript, too, can represent whole numbers up to 2 ** 53."""
MOST_CONNECTIONS: Final = (1 << 53 - SHIFT) - 1
"""How many connections one process can have in its life with distinct numbers."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The process that a worker wants to talk to."""

    server: str
    command: str
    args: tuple[str, ...]
    env: dict[str, str] = field(repr=False)
    cwd: str | None
    shared: bool
    """Whether all workers that want the same share one process; otherwise this worker gets its own."""
    line_bound: int
    """Longest line of the process that is passed on, in bytes."""
    concurrency: int
    """Calls of clients that the process may run at a time; more wait."""

    @staticmethod
    def by(config: UpstreamConfig, environ: Mapping[str, str], *, shared: bool, line_bound: int) -> "Wanted":
        """Make it from an upstream's settings, and the environment from which the process may inherit."""
        cwd = None if config.cwd is None else str(config.cwd)
        env = {**inherited(config.inherit_env, environ), **config.env}
        program = (config.name, config.command or "", config.args, env, cwd)
        return Wanted(*program, shared, line_bound, config.concurrency)

    def as_line(self) -> bytes:
        """Return it as one line; equal values give equal lines."""
        return json.dumps(asdict(self), sort_keys=True).encode() + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "Wanted":
        """Read what `as_line` returned. Raises `ValueError` for anything else."""
        return TypeAdapter(Wanted).validate_json(line)


def refusal(error: OSError) -> bytes:
    """The notice that says why the process does not start."""
    return REFUSED + json.dumps([error.errno, error.strerror or str(error), error.filename]).encode()


def refused(why: bytes) -> OSError:
    """The error that `refusal` was made from. `why`: what follows the notice's first byte."""
    number, words, name = json.loads(why)
    return OSError(words) if number is None else OSError(number, words, name)


def ending(cause: str) -> bytes:
    """The notice that the process can't be used any more."""
    return ENDED + json.dumps(cause).encode()


def long_line(number: int | None, length: int) -> bytes:
    """The notice that a line was dropped. `number`: the request that it answered, if known."""
    return b"%b%d %d" % (LONG, -1 if number is None else number, length)
