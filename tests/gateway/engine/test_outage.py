"""What is logged of an engine that is not up, and when it is tried again."""

import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import EngineConfig
from gateway.engine.start.engine_health import Outage, Pauses, first_words, until_file_changes
from gateway.errors import EngineStarting, EngineUnavailable, MapDiffers, ModelUnusable


def test_engine_that_keeps_dying_soon_after_its_start_is_started_ever_more_slowly():
    pauses = Pauses(0.5, 60.0, steady=30.0)

    assert [pauses.after(up) for up in (None, 1.0, 29.9, None, 1.0, 1.0, 1.0, 1.0, None)] == [
        *(0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0)
    ]


def test_engine_that_was_up_for_long_is_started_again_soon():
    pauses = Pauses(0.5, 60.0, steady=30.0)
    for _ in range(20):
        pauses.after(None)

    assert [pauses.after(up) for up in (30.0, 1.0, 3600.0)] == [0.5, 1.0, 0.5]


@given(st.lists(st.none() | st.floats(0, 100)))
def test_no_pause_is_shorter_than_the_first_or_longer_than_the_longest(lives: list[float | None]):
    pauses = Pauses(0.5, 4.0, steady=30.0)

    assert all(0.5 <= pauses.after(up) <= 4.0 for up in lives)


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The level and the reason of each line that was logged since."""
    found = [(record.levelname, str(record.msg).partition("'reason': '")[2][0]) for record in caplog.records]
    caplog.clear()
    return found


def test_reason_is_logged_once_in_an_hour_of_an_outage_and_again_in_the_next(caplog: pytest.LogCaptureFixture):
    outage = Outage("attic")
    for now in (0.0, 1.0, 3599.0):
        outage.failed(EngineUnavailable("a"), now)
    outage.failed(EngineUnavailable("b"), 3599.0)
    assert lines(caplog) == [("WARNING", "a"), ("WARNING", "b")]
    outage.failed(EngineUnavailable("a"), 3600.0)
    assert "'engine': 'attic', 'reason': 'a', 'failed_attempts': 5" in caplog.text
    assert lines(caplog) == [("WARNING", "a")]
    outage.failed(EngineUnavailable("a"), 3601.0)

    assert outage.recovered() == 6
    assert outage.recovered() == 0
    assert lines(caplog) == []
    outage.failed(EngineUnavailable("a"), 3602.0)
    assert "'failed_attempts': 1" in caplog.text


def test_engine_that_is_starting_is_no_warning_and_a_map_that_differs_is_an_error(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    outage = Outage("attic")
    outage.failed(EngineStarting("s"), 0.0)
    assert "engine starting" in caplog.text
    assert "failed_attempts" not in caplog.text
    outage.failed(MapDiffers("d", sample="x", map_ids=[1], engine_ids=[2]), 0.0)

    assert lines(caplog) == [("INFO", "s"), ("ERROR", "d")]


def test_reasons_that_never_come_twice_are_forgotten_the_oldest_first(caplog: pytest.LogCaptureFixture):
    outage = Outage("attic")
    for number in range(33):
        outage.failed(EngineUnavailable(f"{number:02}"), 0.0)
    lines(caplog)
    for number in (0, 2, 32):
        outage.failed(EngineUnavailable(f"{number:02}"), 0.0)

    assert lines(caplog) == [("WARNING", "0")]


def test_engine_that_nothing_is_known_of_yet_is_named_without_its_password():
    url = EngineConfig(kind="url", url="http://me:secret@host:1")

    assert first_words(url).startswith("the engine at 'http://")
    assert "secret" not in first_words(url)
    assert first_words(url).endswith("is being asked for the first time")
    assert first_words(EngineConfig(kind="embedded")) == "the embedded engine is loading its model"
    assert first_words(EngineConfig(kind="embedded", model=Path("/a/b.gguf"))).endswith("is loading 'b.gguf'")


def test_error_that_lasts_says_that_the_file_is_waited_for():
    differs = until_file_changes(MapDiffers("no", sample="x", map_ids=[1], engine_ids=[2]))
    assert isinstance(differs, MapDiffers)
    assert (differs.sample, differs.map_ids, differs.engine_ids) == ("x", [1], [2])
    unusable = until_file_changes(ModelUnusable("no"))
    assert isinstance(unusable, ModelUnusable)
    for error in (differs, unusable):
        assert error.message == "no; the gateway tries again when the model's file changes"
