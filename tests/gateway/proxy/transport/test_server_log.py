"""What one server gives reason to log, and how much of it is logged."""

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway.observe.logs import configure_logging, get_logger
from gateway.proxy.transport.transport_interface import LINES, ServerLog


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True, scope="module")
def _leave_logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], root.level = handlers, level


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    configure_logging(json=True, stream=stream)
    return stream


@pytest.fixture
def server_log(stream: io.StringIO, clock: Clock) -> ServerLog:
    return ServerLog(get_logger("test"), clock)


@pytest.fixture
def logged(stream: io.StringIO) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_lines_of_standard_error_are_escaped_and_blank_ones_left_out(server_log, logged):
    server_log.stderr(b"one\x1b[31m\n\n  \ntwo\xff")
    server_log.stderr(b" more\n")

    assert [entry["line"] for entry in logged()] == ["one\\x1b[31m", "two\\xff more"]


def test_long_line_is_cut_and_the_line_without_end_comes_at_the_close(server_log, logged):
    server_log.stderr(b"x" * 100_000 + b"\nlast")
    server_log.close()

    first, last = logged()
    assert len(first["line"]) == 256
    assert last["line"] == "last"


def test_flood_is_cut_off_within_a_second_and_counted_in_the_next(server_log, clock, logged):
    server_log.stderr(b"x\n" * (LINES + 40))
    server_log.warning("upstream did wrong")
    clock.now += 1.0
    server_log.warning("upstream did wrong again")

    entries = logged()
    assert len(entries) == LINES + 2
    assert entries[LINES]["lines_left_out"] == 41
    assert entries[LINES + 1]["event"] == "upstream did wrong again"


def test_what_was_left_out_is_said_at_the_close(server_log, logged):
    server_log.stderr(b"x\n" * (LINES + 1))
    server_log.close()

    assert logged()[-1]["lines_left_out"] == 1


def test_as_many_lines_as_may_be_logged_in_a_second_are_all_logged_in_each_second(server_log, clock, logged):
    for _ in range(2):
        server_log.stderr(b"x\n" * LINES)
        clock.now += 1.0
    server_log.close()

    assert [entry["event"] for entry in logged()] == ["upstream stderr"] * (2 * LINES)
