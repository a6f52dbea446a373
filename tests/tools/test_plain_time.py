"""The plain time server: cities found, times told, nothing of token ids."""

import re
import sys
from datetime import UTC, datetime
from zoneinfo import available_timezones

import anyio
import pytest
from mcp import Client, StdioServerParameters

from plain_time.clock import fold, tell_time, zones_by_city
from tests.cases import each_of

NOW = datetime(2026, 11, 21, 5, 37, tzinfo=UTC)


@each_of(
    ("city", "zone"),
    [
        ("Tokyo", "Asia/Tokyo"),
        ("tOKYO ", "Asia/Tokyo"),
        ("New York", "America/New_York"),
        ("new_york", "America/New_York"),
        ("Zürich", "Europe/Zurich"),
        ("Zu\u0308rich", "Europe/Zurich"),
        ("Sao Paulo", "America/Sao_Paulo"),
        ("São Paulo", "America/Sao_Paulo"),
        ("Port-au-Prince", "America/Port-au-Prince"),
    ],
)
def test_city_is_found_whatever_its_case_accents_and_blanks(city, zone):
    assert zones_by_city(available_timezones())[fold(city)] == zone


@pytest.mark.parametrize("word", ["Atlantis", "", "UTC", "GMT+5", "Asia", "Asia/Tokyo"])
def test_what_is_no_city_is_not_found(word):
    assert fold(word) not in zones_by_city(available_timezones())


def test_time_is_told_as_local_time_with_the_citys_own_name():
    told = tell_time("Zürich", "Asia/Tokyo", NOW)
    assert told == "The time in Zürich is 14:37 on Saturday, 2026-11-21 (UTC+09:00)."
    tomorrow = tell_time("x", "Asia/Tokyo", NOW.replace(hour=16))
    assert tomorrow == "The time in x is 01:37 on Sunday, 2026-11-22 (UTC+09:00)."


def test_offset_of_half_an_hour_west_is_told_with_its_sign():
    assert tell_time("x", "America/St_Johns", NOW).endswith("02:07 on Saturday, 2026-11-21 (UTC-03:30).")


@pytest.mark.anyio
async def test_server_tells_the_time_in_text_alone_and_refuses_an_unknown_city():
    server = StdioServerParameters(command=sys.executable, args=["-m", "plain_time"])
    with anyio.fail_after(60):
        async with Client(server) as client:
            told = await client.call_tool("get_time", {"city": "Tokyo"})
            lost = await client.call_tool("get_time", {"city": "Atlantis"})

    (block,) = told.content
    assert re.fullmatch(
        r"The time in Tokyo is \d\d:\d\d on [A-Z][a-z]+day, \d{4}-\d\d-\d\d \(UTC\+09:00\)\.", block.text
    )
    assert block.meta is None
    assert told.structured_content is None
    assert lost.is_error
    assert "Atlantis" in lost.content[0].text
