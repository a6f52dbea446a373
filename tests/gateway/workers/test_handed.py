"""What a parent and its workers tell each other."""

from pathlib import Path

import pytest

from gateway.app.options import ServeOptions
from gateway.config.replicas import WorkerConfig
from gateway.errors import ConfigError, GatewayError
from gateway.workers.handover import ORDERS, READY, Descriptors, Handed, failure_line, fault_of, order_line
from gateway.workers.parent import cores, count_of
from tests.cases import each_of


@pytest.mark.parametrize("alone", [True, False])
def test_worker_reads_what_it_was_handed(alone: bool) -> None:
    options = ServeOptions(Path("a b.toml"), {"serve.port": 0, "engine.model": Path("m.gguf")}, None, "debug")
    descriptors = Descriptors(3, 4, None, None) if alone else Descriptors(3, 4, 5, 6)
    worker = WorkerConfig(1, 2, Path("/tmp/é"), ("127.0.0.1:1", "127.0.0.1:2"))

    read = Handed.from_argument(Handed(worker, options, descriptors).as_argument())

    assert (read.worker, read.descriptors) == (worker, descriptors)
    assert read.options.config == options.config
    assert read.options.flags == {"serve.port": 0, "engine.model": "m.gguf"}
    assert (read.options.engines, read.options.log_level) == (None, "debug")
    assert descriptors.open == ((3, 4) if alone else (3, 4, 5, 6))


def test_every_order_is_read_as_it_was_written() -> None:
    assert [ORDERS[order_line(order)] for order in ("drain", "end", "reload")] == ["drain", "end", "reload"]


@pytest.mark.parametrize("error", [ConfigError("a\nb é"), GatewayError("x" * 4000)])
def test_fault_of_a_worker_keeps_its_kind_and_its_words(error: GatewayError) -> None:
    line = failure_line(error)
    read = fault_of(line)

    assert line.count(b"\n") == 1
    assert type(read) is type(error)
    assert read is not None
    assert read.message == error.message


def test_words_that_are_too_many_are_cut_to_what_a_parent_reads() -> None:
    line = failure_line(GatewayError("x" * 1_000_000))

    assert len(line) < 10_000
    assert "more characters" in str(fault_of(line))


def test_first_word_of_a_worker_is_that_it_is_ready_or_it_ended() -> None:
    silent = fault_of(b"")

    assert fault_of(READY) is None
    assert "ended before it was ready" in str(fault_of(b'{"failed": "brok'))
    assert silent is not None
    assert "ended before it was ready" in silent.message


@each_of(
    ("usable", "quota", "count"),
    [
        (8, "max 100000\n", 8),
        (8, "200000 100000\n", 2),
        (8, "150000 100000\n", 2),
        (8, "10000 100000", 1),
        (2, "800000 100000", 2),
        (4, "", 4),
        (4, "100000 0", 4),
        (1000, "max 100000", 256),
    ],
)
def test_auto_is_one_worker_for_each_core_that_may_be_used(usable: int, quota: str, count: int) -> None:
    assert cores(usable, quota) == count


def test_number_of_workers_is_what_was_set_and_auto_at_least_one() -> None:
    assert count_of(3) == 3
    assert count_of("auto") >= 1
