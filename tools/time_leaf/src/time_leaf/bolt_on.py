"""The same two tools as bolt-ons: called with token ids, they answer with ids that were mostly made beforehand.

The folder `tools` holds a manifest for each and a cache of its fragments for each model. `FRAGMENTS` is the source of
the caches; `python -m time_leaf.precache` rebuilds them.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

from leaf_sdk import CodecTool, ToolRefusal, fill, load_tool

from . import clock

T = TypeVar("T")

FOLDER: Final = Path(__file__).parent / "tools"

_SENTENCE = "The time in {zone} is {time} on {day}, {date} (UTC{offset})."
FRAGMENTS: Final[Mapping[str, Mapping[str, str]]] = {
    "get_current_time": {"sentence": _SENTENCE},
    "convert_time": {
        "sentences": f"{_SENTENCE} "
        "The time in {to_zone} is {to_time} on {to_day}, {to_date} (UTC{to_offset})."
    },
}
"""What each tool can say, by its fragments' ids."""


def open_tools(now: Callable[[], datetime], map_paths: Iterable[str | Path]) -> list[CodecTool]:
    """Open both tools for the models whose maps are given.

    Args:
        now: returns the present moment, with a time zone.
        map_paths: Codec maps, GGUF files or tokenizer.json files.

    Raises:
        CodecError: a map can't be obtained, or the tools have no ids for it.
    """
    paths = list(map_paths)

    def get_current_time(arguments: Mapping[str, Any]) -> object:
        zone = _text({"timezone": clock.DEFAULT_ZONE, **arguments}, "timezone")
        reading = _asked(lambda: clock.read_clock(now(), zone))
        return fill("sentence", **_slots(reading))

    def convert_time(arguments: Mapping[str, Any]) -> object:
        words = [_text(arguments, name) for name in ("source_timezone", "time", "target_timezone")]
        source, target = _asked(lambda: clock.convert(now(), *words))
        return fill("sentences", **_slots(source), **{f"to_{name}": value for name, value in _slots(target).items()})

    functions = {"get_current_time": get_current_time, "convert_time": convert_time}
    return [load_tool(FOLDER / name, function, paths) for name, function in functions.items()]


def _slots(reading: clock.Reading) -> dict[str, str]:
    return {
        "zone": reading.timezone,
        "time": reading.time,
        "day": reading.day,
        "date": reading.date,
        "offset": reading.utc_offset,
    }


def _asked(read: Callable[[], T]) -> T:
    try:
        return read()
    except (clock.UnknownPlace, clock.UnreadableTime) as error:
        raise ToolRefusal(str(error)) from error


def _text(arguments: Mapping[str, Any], name: str) -> str:
    value: object = arguments.get(name)
    if not isinstance(value, str):
        raise ToolRefusal(f"argument {name!r} is {value!r:.60}, expected a string")
    return value
