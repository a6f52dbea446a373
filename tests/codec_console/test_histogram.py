"""How long calls took, as bars."""

from math import inf

from codec_console.histogram import HEIGHT, WIDTH, picture_of
from gateway.observe.metrics import Metrics


def test_bars_stand_beside_each_other_inside_the_field_and_say_what_they_are() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.0005, 0.02, 120.0):
        metrics.tool_called("time", "ok", seconds)
    metrics.tool_called("other", "ok", 0.3)

    picture = picture_of(metrics.call_times("time"))

    assert picture.calls == 4
    assert [bar.words for bar in picture.bars if bar.height] == [
        "up to 1 ms: 2 calls",
        "up to 25 ms: 1 call",
        "longer: 1 call",
    ]
    assert all(bar.x + bar.width <= WIDTH and 0 <= bar.y <= HEIGHT for bar in picture.bars)
    assert [mark.words for mark in picture.marks] == ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]


def test_calls_of_several_servers_are_added_up() -> None:
    metrics = Metrics()
    for server, seconds in (("time", 0.02), ("git", 0.02), ("git", 3.0), ("other", 3.0)):
        metrics.tool_called(server, "ok", seconds)

    assert [each for each in metrics.call_times("time", "git") if each[1]] == [(0.025, 2), (5.0, 1)]
    assert metrics.call_times() == []


def test_one_call_among_thousands_is_seen() -> None:
    assert picture_of([(1.0, 100_000), (inf, 1)]).bars[1].height >= 2


def test_nothing_is_nothing() -> None:
    assert picture_of([]).calls == picture_of([(1.0, 0), (inf, 0)]).calls == 0
