"""A place and a time in a person's words become what a clock there shows."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import each_of
from time_leaf.clock import UnknownPlace, UnreadableTime, convert, find_zone, read_clock

NOW = datetime(2026, 11, 21, 13, 37, 42, tzinfo=UTC)


def test_a_clock_shows_the_time_of_its_place():
    reading = read_clock(NOW, "Europe/Paris")
    assert (reading.timezone, reading.time, reading.date, reading.day, reading.utc_offset) == (
        "Europe/Paris",
        "14:37",
        "2026-11-21",
        "Saturday",
        "+01:00",
    )


def test_a_clock_across_the_date_line_shows_the_next_day():
    reading = read_clock(NOW.replace(hour=20), "Asia/Tokyo")
    assert (reading.time, reading.date, reading.day) == ("05:37", "2026-11-22", "Sunday")


@pytest.mark.parametrize(
    ("place", "offset"), [("America/St_Johns", "-03:30"), ("Asia/Kathmandu", "+05:45"), ("UTC", "+00:00")]
)
def test_an_offset_is_written_with_hours_and_minutes(place, offset):
    assert read_clock(NOW, place).utc_offset == offset


@each_of(
    ("place", "zone"),
    [
        ("Europe/Zurich", "Europe/Zurich"),
        ("europe/zurich", "Europe/Zurich"),
        ("Zurich", "Europe/Zurich"),
        ("Zürich", "Europe/Zurich"),
        ("zu\u0308rich", "Europe/Zurich"),
        ("  New York ", "America/New_York"),
        ("NEW_YORK", "America/New_York"),
        ("São Paulo", "America/Sao_Paulo"),
        ("Buenos Aires", "America/Argentina/Buenos_Aires"),
        ("Port-au-Prince", "America/Port-au-Prince"),
        ("utc", "UTC"),
        ("US/Eastern", "US/Eastern"),
    ],
)
def test_a_place_is_found_by_its_zone_or_its_city(place, zone):
    assert find_zone(place).key == zone


@pytest.mark.parametrize(
    ("place", "offered"), [("Zurrich", "Europe/Zurich"), ("Tokio", "Asia/Tokyo"), ("Europe/Pariss", "Europe/Paris")]
)
def test_an_unknown_place_is_named_and_the_closest_are_offered(place, offered):
    with pytest.raises(UnknownPlace) as raised:
        find_zone(place)
    assert repr(place) in str(raised.value)
    assert offered in str(raised.value)


@pytest.mark.parametrize("place", ["", "Eastern", "../../etc/hosts", "/etc/hosts", "x" * 5000, "Europe/\0", "\n\n"])
def test_what_is_no_place_is_unknown_and_stays_short(place):
    with pytest.raises(UnknownPlace) as raised:
        find_zone(place)
    assert len(str(raised.value)) < 400
    assert "\n" not in str(raised.value)


def test_a_time_is_converted_with_both_dates():
    source, target = convert(NOW, "Tokyo", "08:05", "Los Angeles")
    assert (source.timezone, source.time, source.date) == ("Asia/Tokyo", "08:05", "2026-11-21")
    assert (target.timezone, target.time, target.date) == ("America/Los_Angeles", "15:05", "2026-11-20")


def test_an_hour_that_the_clocks_skip_is_read_as_they_show_it():
    spring = datetime(2026, 3, 29, 12, 0, tzinfo=UTC)
    source, target = convert(spring, "Europe/Paris", "02:30", "UTC")
    assert (source.time, target.time) == ("03:30", "01:30")


def test_of_an_hour_that_comes_twice_the_first_is_meant():
    autumn = datetime(2026, 10, 25, 12, 0, tzinfo=UTC)
    assert convert(autumn, "Europe/Paris", "02:30", "UTC")[1].time == "00:30"


@each_of("time", ["", "24:00", "12:60", "12", "12:5", "noon", "-1:00", "12:00:00", "１２:００"])
def test_what_is_no_time_of_day_is_refused_by_name(time):
    with pytest.raises(UnreadableTime) as raised:
        convert(NOW, "UTC", time, "UTC")
    assert repr(time) in str(raised.value)


@given(st.text())
def test_any_text_is_a_place_or_is_refused(place):
    try:
        zone = find_zone(place)
    except UnknownPlace:
        return
    assert read_clock(NOW, zone.key).timezone == zone.key


@given(st.times(), st.sampled_from(["Europe/Paris", "Asia/Kolkata", "America/Caracas"]))
def test_converting_to_the_same_place_changes_nothing(time, place):
    text = time.strftime("%H:%M")
    source, target = convert(NOW, place, text, place)
    assert source == target
    assert source.time == text
