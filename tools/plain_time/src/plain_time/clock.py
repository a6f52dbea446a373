"""The time in a city, by the IANA time zone whose last part is the city's name.

Pure except for the time zone database: the present moment is passed in.
"""

import unicodedata
from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo


def zones_by_city(zones: Iterable[str]) -> dict[str, str]:
    """Return zone names by folded city; zones without a region (`UTC`, `EST`) are not cities."""
    return {
        fold(zone.rpartition("/")[2]): zone for zone in sorted(zones) if "/" in zone and not zone.startswith("Etc/")
    }


def fold(city: str) -> str:
    """Return a city's name for comparison: without case and accents, with underscores and hyphens as blanks."""
    plain = "".join(c for c in unicodedata.normalize("NFKD", city) if not unicodedata.combining(c))
    return " ".join(plain.casefold().replace("_", " ").replace("-", " ").split())


def tell_time(city: str, zone: str, now: datetime) -> str:
    """Return `The time in Tokyo is 14:37 on Saturday, 2026-11-21 (UTC+09:00).`; `now` must have a time zone."""
    local = now.astimezone(ZoneInfo(zone))
    offset = f"{local:%z}"
    return f"The time in {city} is {local:%H:%M on %A, %Y-%m-%d} (UTC{offset[:3]}:{offset[3:5]})."
