"""Figures of samples: quantiles and their bounds, pairs, intervals, and what is written of them."""

import json
import statistics
import xml.etree.ElementTree as ET
from math import comb, isclose
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from codec_bench.answer import AnswerContent, AnswerFault
from codec_bench.histogram import Histogram
from codec_bench.picture import Panel, chart, draw, number
from codec_bench.plan import MOST_SAMPLES, Plan, check_plan
from codec_bench.report import report_of
from codec_bench.sample import Position, Tally, Timed, sample_of
from codec_bench.server import read_servers
from codec_bench.summary import busy_seconds, compared, interval_places, prompts_of, quantile, spread
from gateway.errors import ConfigError
from tests.cases import each_of

FIGURES = st.floats(0, 1e6)


@given(st.lists(FIGURES, min_size=2, max_size=60))
def test_quantiles_are_those_of_the_standard_library(values: list[float]) -> None:
    expected = statistics.quantiles(values, n=100, method="inclusive")

    found = spread(values)

    assert found is not None
    assert (found.least, found.most, found.count) == (min(values), max(values), len(values))
    for ours, theirs in zip((found.p50, found.p90, found.p99), (expected[49], expected[89], expected[98]), strict=True):
        assert isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)


def test_nothing_has_no_quantiles() -> None:
    assert spread([]) is None
    assert Histogram().quantile(0.5) is None
    assert quantile([3.0], 0.99) == 3.0


@given(st.lists(st.floats(1e-5, 1e4), min_size=1, max_size=80), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_histogram_is_right_to_half_a_percent(values: list[float], part: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    # The least value that so large a part does not exceed.
    exact = next(v for n, v in enumerate(sorted(values), 1) if n >= part * len(values))

    assert isclose(histogram.quantile(part) or 0, exact, rel_tol=0.0051)
    assert histogram.count == len(values)


def test_histogram_has_a_bound_whatever_is_counted() -> None:
    histogram = Histogram()
    for exponent in range(-400, 300):
        histogram.add(10.0**exponent if exponent > -300 else 0.0)
    histogram.add(float("inf"))

    assert len(histogram.counts) < 2400
    assert histogram.quantile(0.3) == 0.0


@given(st.integers(1, 200))
def test_interval_holds_the_median_in_95_of_100_cases_and_no_narrower_one_does(count: int) -> None:
    def outside(place: int) -> float:
        return 2 * sum(comb(count, below) for below in range(place + 1)) / 2**count

    places = interval_places(count)

    if places is None:
        assert outside(0) > 0.05
    else:
        low, high = places
        assert high == count - 1 - low
        assert outside(low) <= 0.05 < outside(low + 1)


def test_interval_of_many_is_close_to_the_exact_one() -> None:
    for count in (201, 1000, 5000):
        low, high = interval_places(count) or (0, 0)
        inside = sum(comb(count, below) for below in range(low + 1, high + 1)) / 2**count
        assert 0.945 < inside < 0.97


def sample(place: int, first: float = 0.1, whole: float = 1.0, began: float = 0.0, **told: Any) -> tuple[Any, Timed]:
    timed = Timed(first, whole, [0.3, 0.3], 1000, 900, 1800)
    said = AnswerContent([told.pop("text", "Hi")], told.pop("ids", []), **told)
    return sample_of(Position(place, 0), began, 0.0, timed, said), timed


def tally_of(*samples: tuple[Any, Timed]) -> Tally:
    tally = Tally()
    for each, timed in samples:
        tally.add(each, timed.gaps)
    return tally


def test_servers_are_compared_by_pairs_of_the_same_request() -> None:
    first = tally_of(*(sample(n, first=0.1 * (n + 1)) for n in range(9)))
    # Twice as long each, whatever it is; one has no partner.
    other = tally_of(*(sample(n, first=0.2 * (n + 1)) for n in range(8)), sample(100, first=77.0))

    found = compared(first, other)

    ratio = found.ratios["first"]
    assert isclose(ratio.middle, 2.0)
    assert ratio.low is not None
    assert isclose(ratio.low, 2.0)
    assert ratio.pairs == 8
    assert found.same_text == 8
    assert (found.same_ids, found.other_ids) == (0, 0)


def test_too_few_pairs_have_no_interval() -> None:
    few = tally_of(*(sample(n) for n in range(5)))
    ratio = compared(few, few).ratios["whole"]

    assert (ratio.middle, ratio.low, ratio.high) == (1.0, None, None)


def test_ids_and_texts_that_differ_are_counted() -> None:
    first = tally_of(sample(0, ids=[1, 2]), sample(1, ids=[1, 23]), sample(2), sample(3, ids=[1]))
    other = tally_of(sample(0, ids=[1, 2]), sample(1, ids=[12, 3]), sample(2, text="Ho"), sample(3))

    found = compared(first, other)

    assert (found.same_ids, found.other_ids) == (1, 1)
    assert (found.same_text, found.other_text) == (3, 1)


def test_text_is_compared_where_both_have_some() -> None:
    first = tally_of(sample(0), sample(1, text="", ids=[1]))
    other = tally_of(sample(0, text="", ids=[1]), sample(1, text="", ids=[1]))

    found = compared(first, other)

    assert (found.same_text, found.other_text) == (0, 0)
    assert (found.same_ids, found.other_ids) == (1, 0)


def test_late_sending_is_part_of_the_times() -> None:
    timed = Timed(0.1, 1.0, [], 1, 1, 1)
    late = sample_of(Position(0, 0), 5.0, 2.0, timed, AnswerContent(["x"]))

    assert (late.first, late.whole, late.late) == (2.1, 3.0, 2.0)


def test_time_a_token_is_that_behind_the_first() -> None:
    ((each, _),) = [sample(0, completion_tokens=4)]

    assert isclose(each.a_token or 0, 0.2)
    assert each.bytes_a_token == 250
    assert sample(0)[0].a_token is None


def test_prompts_count_where_the_server_tells_both_and_never_more_than_all() -> None:
    tally = tally_of(
        sample(0, prompt_tokens=10, cached_tokens=4),
        sample(1, prompt_tokens=10),
        sample(2, prompt_tokens=5, cached_tokens=99),
    )

    told = prompts_of(tally)

    assert (told.told, told.tokens, told.cached, told.processed, told.reused) == (2, 15, 9, 6, 0.6)
    assert prompts_of(Tally()).reused is None


def test_waiting_for_its_turn_is_no_time_of_a_server() -> None:
    assert busy_seconds(tally_of(sample(0, began=0), sample(1, began=0.5), sample(2, began=10))) == 2.5


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), max_size=20))
def test_time_of_a_server_is_at_most_the_sum_and_at_least_the_longest(spans: list[tuple[float, float]]) -> None:
    tally = tally_of(*(sample(n, began=began, whole=whole) for n, (began, whole) in enumerate(spans)))
    busy = busy_seconds(tally)

    assert busy <= sum(whole for _, whole in spans) + 1e-9
    assert busy >= max((whole for _, whole in spans), default=0.0) - 1e-9


ABOUT = {"client": {"core": 0.1}, "stopped": False}


def report(*tallies: Tally, urls: list[str] | None = None) -> dict[str, Any]:
    urls = urls or [f"http://127.0.0.1:{n}/v1" for n in range(len(tallies))]
    return report_of(urls, ["m"] * len(tallies), tallies, 2.0, ABOUT)


def test_report_is_json_and_holds_every_sample_and_no_words_but_those_of_errors() -> None:
    tally = tally_of(*(sample(n, text="private words", ids=[1]) for n in range(3)))
    tally.fail(AnswerFault("http", "it answered 500: \x1b[2Jboom", 500))
    tally.fail(AnswerFault("http", "it answered 500: other", 500))

    made = report(tally, Tally())
    text = json.dumps(made, allow_nan=False)

    assert "private words" not in text
    assert len(made["samples"]) == 3
    assert made["servers"][0]["errors"] == {"http 500": {"count": 2, "first": r"it answered 500: \x1b[2Jboom"}}
    assert made["servers"][0]["first_ms"]["p50"] == 100.0
    assert made["servers"][0]["compression"] == 2.0
    assert made["servers"][1]["first_ms"] is None
    assert made["comparisons"][0]["ratios"] == {}


@given(st.lists(st.text(max_size=80), min_size=1, max_size=4), st.lists(FIGURES, min_size=1, max_size=5))
def test_picture_is_xml_whatever_the_names_and_figures_are(urls: list[str], figures: list[float]) -> None:
    tallies = [tally_of(*(sample(n, first=each) for n, each in enumerate(figures))) for _ in urls]

    drawn = ET.fromstring(draw(report(*tallies, urls=urls)))

    names = {element.tag.partition("}")[2] for element in drawn.iter()}
    assert names == {"svg", "style", "text", "rect", "line"}
    bars = [element for element in drawn.iter() if element.tag.endswith("rect")]
    assert len(bars) == 3 * len(urls)
    assert all(2 <= float(bar.attrib["width"]) <= 360 for bar in bars)


def test_picture_of_nothing_is_one_too() -> None:
    assert "<rect" not in draw(report(Tally(), Tally()))


def test_chart_shows_first_value_as_a_bar_and_the_others_as_marks() -> None:
    panels = [Panel("<one>", [("a", {"whole": 50.0}), ("b", {"p50": 1.0, "p95": 25.0, "p99": 100.0}), ("c", None)])]
    drawn = ET.fromstring(chart("A title", "about", panels))
    bars = [element for element in drawn.iter() if element.tag.endswith("rect")]
    words = [element.text for element in drawn.iter() if element.tag.endswith("text")]

    assert [int(bar.attrib["width"]) for bar in bars] == [180, 4]
    # One along the marks, and one for each.
    assert len([element for element in drawn.iter() if element.tag.endswith("line")]) == 3
    assert {"A title", "<one>", "50.0", "1.00 (100)", "none"} <= set(words)


@pytest.mark.parametrize(
    ("value", "words"), [(0.123, "0.12"), (9.994, "9.99"), (9.996, "10.0"), (99.96, "100"), (1234.5, "1,234")]
)
def test_numbers_have_three_digits(value: float, words: str) -> None:
    assert number(value) == words


@each_of(
    ("plan", "words"),
    [
        (Plan(requests=0), "--requests"),
        (Plan(requests=10**9), "--requests"),
        (Plan(seconds=float("nan")), "--seconds"),
        (Plan(seconds=1e9), "--seconds"),
        (Plan(clients=0), "--clients"),
        (Plan(clients=10**6), "--clients"),
        (Plan(rate=0.0), "--rate"),
        (Plan(rate=float("inf")), "--rate"),
        (Plan(ramp=-1.0), "--ramp"),
        (Plan(timeout=0.0), "--timeout"),
        (Plan(warmup=-1), "--warmup"),
        (Plan(requests=100_000), f"at most {MOST_SAMPLES}"),
    ],
)
def test_plan_beyond_its_ceilings_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_plan(plan, 3, 1, 1)


def test_plan_within_them_is_not() -> None:
    check_plan(Plan(), 12, 100, 2)
    with pytest.raises(ConfigError, match="--turns"):
        check_plan(Plan(), 1, 101, 1)
    with pytest.raises(ConfigError, match="URL"):
        check_plan(Plan(), 13, 1, 1)


def test_requests_are_counted_in_conversations() -> None:
    assert Plan(requests=50).conversations(1) == 50
    assert Plan(requests=50).conversations(4) == 13


@each_of(
    ("url", "name"),
    [
        ("http://127.0.0.1:8600", "http://127.0.0.1:8600/v1"),
        ("http://127.0.0.1:8600/", "http://127.0.0.1:8600/v1"),
        ("https://example.org/llm/v1/", "https://example.org/llm/v1"),
        ("http://[::1]:1/v1", "http://[::1]:1/v1"),
        ("http://127.0.0.1:8600#protobuf", "http://127.0.0.1:8600/v1#protobuf"),
        ("http://127.0.0.1:8600/v1#json", "http://127.0.0.1:8600/v1"),
        ("http://127.0.0.1:8600#json,identity", "http://127.0.0.1:8600/v1#json,identity"),
        ("http://127.0.0.1:8600#msgpack,zstd", "http://127.0.0.1:8600/v1#msgpack,zstd"),
    ],
)
def test_address_stands_for_its_api(url: str, name: str) -> None:
    (server,) = read_servers([url], [], {})

    assert server.name == name
    assert server.is_here == ("example" not in url)


@each_of(
    "url",
    [
        "",
        "8600",
        "ftp://127.0.0.1",
        "http://",
        "http://a b",
        "http://x\x1b[2J",
        "http://127.0.0.1/v1?a=b",
        "http://127.0.0.1#xml",
        "http://127.0.0.1#json,deflate",
        "http://127.0.0.1#br",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        read_servers([url], [], {})


def test_address_with_a_password_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError) as raised:
        read_servers(["http://me:secret@127.0.0.1"], [], {})

    assert "secret" not in str(raised.value)


def test_each_server_has_a_key_of_its_own(tmp_path: Any) -> None:
    (tmp_path / "key").write_text("from-file\n")
    urls = [f"http://127.0.0.1:{n}" for n in range(1, 4)]

    servers = read_servers(urls, ["env:KEY", "none", f"file:{tmp_path / 'key'}"], {"KEY": "from-env"})

    assert [server.key for server in servers] == ["from-env", None, "from-file"]
    assert "from-" not in repr(servers)
    with pytest.raises(ConfigError, match="given 1 times for 3"):
        read_servers(urls, ["env:KEY"], {"KEY": "x"})


@pytest.mark.parametrize("key", ["sk-secret", "env:", "env:MISSING", "env:BAD", "file:/nowhere/at/all", "vault:x"])
def test_key_that_is_none_is_refused_without_repeating_it(key: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_servers(["http://127.0.0.1"], [key], {"BAD": "secret\r\nx: y"})

    assert "secret" not in str(raised.value)


def test_same_address_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        read_servers(["http://127.0.0.1", "http://127.0.0.1/v1"], [], {})


def test_tally_knows_what_was_cut_off() -> None:
    tally = Tally()
    request = tally.request()
    request.__enter__()
    assert tally.running == 1
    assert not request.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)

    assert (tally.running, tally.unfinished) == (0, 1)


@given(FIGURES, FIGURES)
def test_ratio_lies_between_its_interval(one: float, other: float) -> None:
    assume(one > 1e-3 and other > 1e-3)
    ratio = compared(
        tally_of(*(sample(n, first=one) for n in range(7))), tally_of(*(sample(n, first=other + n) for n in range(7)))
    ).ratios["first"]

    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= ratio.middle <= ratio.high
