"""Lengths, drawn and recorded conversations, times: the same from the same seed, and within their bounds."""

import json
from itertools import islice, pairwise, repeat
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec_bench.lengths import read_lengths
from codec_bench.schedule import arrivals, clients_at, rotated, time_of
from codec_bench.trace import LARGEST, LONGEST_LINE, MOST_LINES, Recorded, read_trace
from codec_bench.workload import Drawn
from tests.cases import each_of

CEILING = 4096


@given(st.sampled_from(["7", "uniform:3-90", "lognormal:200:0.5", "lognormal:4000:3"]), st.integers())
def test_lengths_that_are_drawn_are_lengths(text: str, seed: int) -> None:
    lengths = read_lengths(text, CEILING)

    assert str(lengths) == text
    assert 1 <= lengths.draw(Random(seed)) <= CEILING


def test_lengths_have_the_middle_that_was_written() -> None:
    random = Random(1)
    draws = sorted(read_lengths("lognormal:200:0.5", CEILING).draw(random) for _ in range(4001))

    assert 185 < draws[2000] < 215
    # Two deviations of the logarithm: 200 * e.
    assert 480 < draws[3910] < 620
    assert {read_lengths("uniform:3-5", CEILING).draw(random) for _ in range(100)} == {3, 4, 5}
    assert {read_lengths("9", CEILING).draw(random) for _ in range(10)} == {9}


@each_of(
    "text",
    [
        *("", "0", "-3", "4097", "many", "1.5", "uniform:5-3", "uniform:0-3", "uniform:3", "uniform:1-9999"),
        *(
            "lognormal:200",
            "lognormal:200:0",
            "lognormal:200:nan",
            "lognormal:200:inf",
            "lognormal:200:4",
            "normal:1:2",
        ),
    ],
)
def test_what_is_no_length_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number, uniform:LEAST-MOST or lognormal:MEDIAN:SIGMA"):
        read_lengths(text, CEILING)


def drawn(seed: int, turns: int = 2) -> Drawn:
    return Drawn(seed, read_lengths("uniform:20-60", CEILING), read_lengths("uniform:1-9", CEILING), turns)


@given(st.integers(), st.integers(-100, 100_000))
def test_conversation_follows_from_seed_and_number_alone(seed: int, number: int) -> None:
    one, other = drawn(seed).conversation(number), drawn(seed).conversation(number)

    assert one == other
    assert len(one.turns) == 2
    assert drawn(seed).conversation(number + 1).turns != one.turns
    assert drawn(seed + 1).conversation(number).turns != one.turns
    for turn in one.turns:
        words = turn.messages[0]["content"].split()
        assert 19 <= len(words) <= 60
        assert 1 <= turn.answer_tokens <= 9


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def trace(*lines: bytes) -> Recorded:
    return read_trace(lines, 0, 1000, 100)


def test_trace_is_asked_in_the_order_of_its_times() -> None:
    messages = [{"role": "user", "content": "Hi"}]
    found = trace(line(at=2, prompt_tokens=5, answer_tokens=3), b"\n", line(at=0.5, messages=messages, answer_tokens=4))

    assert found.times == (0.5, 2.0)
    first, second, again = (found.conversation(number) for number in range(3))
    assert list(first.turns[0].messages) == messages
    assert first.turns[0].answer_tokens == 4
    assert len(second.turns[0].messages[0]["content"].split()) == 5
    assert again.turns == first.turns
    assert again.number == 2


def test_trace_without_all_times_has_none() -> None:
    assert trace(line(at=1, prompt_tokens=5, answer_tokens=3), line(prompt_tokens=5, answer_tokens=3)).times is None


@each_of(
    ("bad", "words"),
    [
        (b"{", "it is not JSON"),
        (b"[" * 100_000, "it is not JSON"),
        (b"[]", "it is not an object"),
        (line(answer_tokens=3), "either 'messages' or 'prompt_tokens'"),
        (line(answer_tokens=3, messages=[], prompt_tokens=3), "either"),
        (line(answer_tokens=3, messages=[]), "not a list of messages"),
        (line(answer_tokens=3, messages=[{"role": "robot"}]), "role 'robot'"),
        (line(answer_tokens=3, messages=["x"]), "role None"),
        (line(answer_tokens=True, prompt_tokens=3), "'answer_tokens' is True"),
        (line(answer_tokens=101, prompt_tokens=3), "from 1 to 100"),
        (line(answer_tokens=3, prompt_tokens=1001), "from 1 to 1000"),
        (line(answer_tokens=3, prompt_tokens=3, at=-1), "'at' is -1"),
        (b'{"answer_tokens": 3, "prompt_tokens": 3, "at": NaN}', "'at' is nan"),
        (line(answer_tokens=3, prompt_tokens=3, url="http://x"), "'url' is not a known key"),
        (b"x" * (LONGEST_LINE + 1), "longer than"),
    ],
)
def test_line_of_another_form_is_named(bad: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=rf"^line 2: .*{words}"):
        trace(line(prompt_tokens=5, answer_tokens=3), bad)


def test_trace_without_an_end_is_refused() -> None:
    with pytest.raises(ValueError, match=f"at most {LARGEST} bytes"):
        read_trace(repeat(b" " * LONGEST_LINE), 0, 1000, 100)
    with pytest.raises(ValueError, match=f"at most {MOST_LINES} lines"):
        read_trace(repeat(line(prompt_tokens=1, answer_tokens=1)), 0, 1000, 100)


def test_empty_trace_is_refused() -> None:
    with pytest.raises(ValueError, match="has no lines"):
        trace(b"", b"\n")


@given(st.integers(), st.floats(0.1, 1000), st.floats(0, 100))
def test_arrivals_come_in_order_and_the_same_each_time(seed: int, rate: float, ramp: float) -> None:
    times = list(islice(arrivals(rate, ramp, seed), 50))

    assert times == list(islice(arrivals(rate, ramp, seed), 50))
    assert all(0 < a <= b for a, b in pairwise(times))


def test_arrivals_have_their_rate_and_come_at_random() -> None:
    times = list(islice(arrivals(100.0, 0.0, 3), 10_000))
    gaps = sorted(b - a for a, b in pairwise(times))

    assert 95 < times[-1] < 105
    # Of random arrivals the median gap is ln 2 of the mean one.
    assert 0.0066 < gaps[len(gaps) // 2] < 0.0073


def test_in_a_ramp_half_as_many_come() -> None:
    assert time_of(500, 100, 10) == 10
    assert time_of(125, 100, 10) == 5
    assert time_of(600, 100, 10) == 11
    assert [clients_at(seconds, 4, 8) for seconds in (0, 1.9, 2, 7.9, 8, 100)] == [1, 1, 2, 4, 4, 4]
    assert clients_at(0, 4, 0) == 4


@given(st.integers(1, 8))
def test_each_server_is_asked_once_a_turn_and_equally_often_at_each_place(count: int) -> None:
    orders = [rotated(count, turn) for turn in range(2 * count)]

    assert all(sorted(order) == list(range(count)) for order in orders)
    for place in range(count):
        assert sorted(order[place] for order in orders) == sorted([*range(count)] * 2)


def test_no_server_is_always_asked_behind_the_same_one() -> None:
    before = {(a, b) for turn in range(6) for a, b in pairwise(rotated(3, turn))}

    assert before == {(a, b) for a in range(3) for b in range(3) if a != b}
