"""A person's words for a place and a time to what a clock there shows.

Pure except for the time zone database: the present moment is passed in. Knows nothing of MCP or tokens.
"""

import difflib
import re
import unicodedata
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

# Areas whose zones are named after places; the others ("US/Eastern", "Etc/GMT+5") are only found by their whole name.
_AREAS = ("Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific")
DEFAULT_ZONE = "UTC"
"""The zone if nobody names a place."""
_HH_MM = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


class UnknownPlace(LookupError):
    """No time zone has that name or city; the message suggests the closest."""


class UnreadableTime(ValueError):
    """The text is not a time of day."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a clock in one place shows. Short words: a small model has to read them."""

    timezone: str
    time: str
    """HH:MM, 24 hours."""
    date: str
    day: str
    utc_offset: str


def read_clock(now: datetime, place: str) -> Reading:
    """Return the time in a place.

    Raises:
        UnknownPlace: no zone has that name.
    """
    return _reading(now.astimezone(find_zone(place)))


def convert(now: datetime, source: str, time: str, target: str) -> tuple[Reading, Reading]:
    """Return a time of day, today in the source place, as the clocks of both places show it.

    A time that the clocks skip on this day becomes the one that they show instead; of one that occurs twice, the first
    is meant.

    Raises:
        UnknownPlace: no zone has that name.
        UnreadableTime: not HH:MM.
    """
    from_zone, to_zone = find_zone(source), find_zone(target)
    match = _HH_MM.fullmatch(time.strip())
    if match is None:
        raise UnreadableTime(f"time {time!r} can't be read, expected HH:MM from 00:00 to 23:59")
    today = now.astimezone(from_zone)
    local = today.replace(hour=int(match[1]), minute=int(match[2]), second=0, microsecond=0, fold=0)
    moment = local.astimezone(UTC)
    return _reading(moment.astimezone(from_zone)), _reading(moment.astimezone(to_zone))


def find_zone(place: str) -> ZoneInfo:
    """Find a zone by its IANA name or by the city that ends it, without regard to case and accents.

    Raises:
        UnknownPlace: no zone has that name; the message suggests close matches.
    """
    index = _index()
    key = _fold(place)
    if key in index:
        return ZoneInfo(index[key])
    close = list(dict.fromkeys(index[match] for match in difflib.get_close_matches(key, index, n=6)))[:3]
    hint = f"did you mean {', '.join(close)}?" if close else "use an IANA name such as Europe/Paris"
    raise UnknownPlace(f"unknown timezone {place[:80]!r}; {hint}")


@cache
def _index() -> dict[str, str]:
    names = sorted(available_timezones(), key=lambda name: (name.count("/"), name))
    # Later entries win: of two names for one city the longer is the current one (America/Argentina/Buenos_Aires).
    cities = {_fold(name.rsplit("/", 1)[-1]): name for name in names if name.split("/")[0] in _AREAS and "/" in name}
    return cities | {_fold(name): name for name in names}


def _fold(text: str) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return re.sub(r"[\s_]+", " ", plain).strip().casefold()


def _reading(moment: datetime) -> Reading:
    offset = moment.strftime("%z")
    return Reading(
        timezone=str(moment.tzinfo),
        time=moment.strftime("%H:%M"),
        date=moment.strftime("%Y-%m-%d"),
        day=moment.strftime("%A"),
        utc_offset=f"{offset[:3]}:{offset[3:5]}",
    )
