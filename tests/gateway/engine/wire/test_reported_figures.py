"""What an engine reports of a generation: figures that no engine can mean are not believed."""

import json
from typing import Any

import pytest

from gateway.engine.interface import Timings
from gateway.engine.wire.llama_cpp_json import timings_of
from tests.cases import each_of

_NO_TIME = ["-1", "-1e300", "1e300", "1e-320", '"nan"', '"inf"', "NaN", "Infinity", "null"]


def ended(prompt_ms: str, predicted_ms: str, predicted: str = "4") -> Timings:
    told: dict[str, Any] = json.loads(
        f'{{"tokens_predicted": {predicted}, "timings": {{"prompt_ms": {prompt_ms}, "predicted_ms": {predicted_ms}}}}}'
    )
    return timings_of(told, 10, 2, 8)


def test_times_are_in_seconds() -> None:
    timings = ended("1500", "250.5")
    assert (timings.prompt_seconds, timings.generate_seconds, timings.generated_n) == (1.5, 0.2505, 4)


@each_of("milliseconds", _NO_TIME)
def test_time_that_no_clock_shows_counts_as_not_reported(milliseconds: str) -> None:
    timings = ended(milliseconds, milliseconds)
    assert (timings.prompt_seconds, timings.generate_seconds) == (0.0, 0.0)


@pytest.mark.parametrize(("reported", "counted"), [("-3", 2), ("1" + "0" * 400, 8)])
def test_count_of_generated_ids_is_bounded(reported: str, counted: int) -> None:
    assert ended("1", "1", reported).generated_n == counted


@pytest.mark.parametrize("processed", [-5, 8, 10**18])
def test_processed_ids_are_no_more_than_the_prompt_has(processed: int) -> None:
    timings = Timings(processed, 3, 1, 0.0, 0.0).within(10)
    assert (timings.prompt_n, timings.cache_n) == (7, 3)
