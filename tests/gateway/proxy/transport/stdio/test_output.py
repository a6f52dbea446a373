"""The output of a process, heard in turns of the loop."""

from typing import TYPE_CHECKING, Any, cast

import anyio
import pytest

from gateway.protocol.lines import PORTION
from gateway.proxy.transport.stdio.server_process import PipeOutput

if TYPE_CHECKING:
    import asyncio

pytestmark = pytest.mark.anyio


class Pipe:
    """A pipe that says whether it is read."""

    def __init__(self) -> None:
        self.read = True
        self.closed = False

    def pause_reading(self) -> None:
        self.read = False

    def resume_reading(self) -> None:
        self.read = True

    def is_closing(self) -> bool:
        return self.closed


def output_of(heard: list[bytes]) -> tuple[PipeOutput, Pipe, Any]:
    pipe = Pipe()
    return PipeOutput(heard.append), pipe, cast("asyncio.ReadTransport", pipe)


async def test_few_lines_are_heard_at_once() -> None:
    heard: list[bytes] = []
    output, pipe, transport = output_of(heard)
    output.take(b"a\n" * PORTION, transport)

    assert heard == [b"a\n" * PORTION]
    assert pipe.read


async def test_many_lines_are_heard_one_portion_a_turn_while_the_pipe_is_not_read() -> None:
    heard: list[bytes] = []
    output, pipe, transport = output_of(heard)
    output.take(b"a\n" * (2 * PORTION + 1), transport)
    output.take(b"b\n", transport)
    seen = [(len(heard), pipe.read)]
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
        seen.append((len(heard), pipe.read))

    assert seen == [(1, False), (2, False), (3, False), (4, True)]
    assert b"".join(heard) == b"a\n" * (2 * PORTION + 1) + b"b\n"


async def test_what_comes_behind_the_output_waits_until_all_of_it_is_heard() -> None:
    heard: list[bytes] = []
    ends: list[int] = []
    output, pipe, transport = output_of(heard)
    output.when_heard(lambda: ends.append(len(heard)))
    output.take(b"a\n" * (2 * PORTION), transport)
    output.when_heard(lambda: ends.append(len(heard)))
    pipe.closed = True
    await anyio.lowlevel.checkpoint()

    assert ends == [0, 2]
    assert not pipe.read
