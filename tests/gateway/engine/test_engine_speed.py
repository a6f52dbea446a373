"""What an engine's measurements say about its next prompt, its next pass, and the next state that is moved."""

import pytest

from gateway.engine.interface import Timings
from gateway.engine.slots.engine_speed import Rates


def processed(*prompts: tuple[int, float]) -> Rates:
    rates = Rates()
    for ids, seconds in prompts:
        rates.processed(ids, seconds)
    return rates


def test_nothing_is_measured_at_first_and_moving_is_cheap() -> None:
    rates = Rates()

    assert (rates.to_process(100), rates.step, rates.size(100)) == (pytest.approx(0.1), 0, 0)
    # A request each, however much it moves.
    assert rates.to_move(100) == rates.to_move(1) == pytest.approx(0.002)
    assert rates.to_move(0) == 0


def test_prompt_takes_as_long_for_each_id_as_prompts_have_so_far() -> None:
    rates = processed((100, 1.0), (300, 1.0))

    assert rates.to_process(50) == pytest.approx(50 * 2 / 400)


@pytest.mark.parametrize(("ids", "seconds"), [(0, 1.0), (-1, 1.0), (10, 0.0), (10, -1.0)])
def test_measurement_of_nothing_counts_for_nothing(ids: int, seconds: float) -> None:
    rates = processed((100, 1.0), (ids, seconds))

    assert rates.to_process(1) == pytest.approx(0.01)
    rates.moved(10, 1000, 1.0)
    rates.moved(0, 1000, 9.0)
    rates.moved(10, 0, 9.0)
    assert rates.size(10) == 1000
    assert rates.to_move(10) == pytest.approx(1.002)


def test_prompts_count_less_the_longer_ago_they_were() -> None:
    rates = processed((20_000, 20.0))
    assert rates.to_process(1) == pytest.approx(0.001)
    rates.processed(20_000, 40.0)
    # The window is exceeded, so both are halved once; what comes then weighs more than the first.
    rates.processed(20_000, 40.0)
    assert rates.to_process(1) == pytest.approx(70 / 40_000)


def test_many_prompts_of_another_speed_replace_what_was_measured_first() -> None:
    rates = processed((20_000, 20.0), *[(20_000, 200.0)] * 20)

    assert rates.to_process(1) == pytest.approx(0.01, rel=0.001)


def test_pass_takes_as_long_as_ids_behind_the_first_one() -> None:
    rates = Rates()
    rates.generated(Timings(100, 7, 11, 2.0, 0.5))

    assert rates.to_process(1) == pytest.approx(0.02)
    assert rates.step == pytest.approx(0.05)
    # A single id comes with the prompt, and tells nothing of a pass.
    rates.generated(Timings(0, 0, 1, 0.0, 0.5))
    rates.generated(Timings(0, 0, 9, 0.0, 0.0))
    assert rates.step == pytest.approx(0.05)
    rates.generated(Timings(0, 0, 2, 0.0, 0.6))
    assert rates.step == pytest.approx(0.1)


def test_passes_count_less_the_longer_ago_they_were() -> None:
    rates = Rates()
    rates.generated(Timings(0, 0, 2001, 0.0, 20.0))
    for _ in range(20):
        rates.generated(Timings(0, 0, 2001, 0.0, 200.0))

    assert rates.step == pytest.approx(0.1, rel=0.001)


def test_state_has_a_constant_part_and_one_for_each_id_once_two_lengths_are_known() -> None:
    rates = Rates()
    rates.moved(100, 5000 + 100 * 70, 1.0)
    # Of one length it can't be told how much of it is constant.
    assert rates.size(200) == 2 * 12_000
    rates.moved(1000, 5000 + 1000 * 70, 1.0)

    assert rates.size(100) == pytest.approx(12_000, abs=1)
    assert rates.size(400) == pytest.approx(33_000, abs=1)
    assert rates.to_move(400) == pytest.approx(0.002 + 33_000 * 2 / 87_000)


def test_lengths_that_hardly_differ_count_as_one() -> None:
    rates = Rates()
    rates.moved(1000, 100_000, 1.0)
    rates.moved(1010, 90_900, 1.0)

    assert rates.size(2000) == pytest.approx(2000 * 190_900 / 2010, rel=0.01)


@pytest.mark.parametrize("sizes", [(300, 100), (100, 1000)], ids=["fewer bytes for more ids", "less than nothing"])
def test_measurements_that_fit_no_line_with_a_constant_part_give_bytes_for_each_id(sizes: tuple[int, int]) -> None:
    rates = Rates()
    rates.moved(100, sizes[0], 1.0)
    rates.moved(200, sizes[1], 1.0)
    total = 0.9 * sizes[0] + sizes[1], 0.9 * 100 + 200

    assert rates.size(300) == int(300 * total[0] / total[1])


def test_size_follows_the_last_states_more_than_the_first() -> None:
    rates = Rates()
    for _ in range(2):
        rates.moved(100, 1000, 1.0)
    for _ in range(30):
        rates.moved(100, 3000, 1.0)

    assert rates.size(100) == pytest.approx(3000, rel=0.05)


def test_bytes_are_moved_as_fast_as_the_last_four_gibibytes() -> None:
    rates = Rates()
    rates.moved(100, 2**31, 2.0)
    assert rates.to_move(100) == pytest.approx(2.002)
    rates.moved(100, 2**32, 40.0)
    rates.moved(100, 2**31, 20.0)

    assert rates.to_move(100) / rates.size(100) == pytest.approx((42 / 2 + 20) / (3 * 2**30 + 2**31), rel=0.01)
