"""Checks values from a file or the environment against the settings that exist: unknown keys, wrong values.

Turns tables into the same tables, checked, or into one ConfigError that says for each problem what was expected, and
which key may have been meant. It knows no file.
"""

import difflib
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.masking import MASK, sounds_secret
from gateway.config.settings import Settings
from gateway.errors import ConfigError

_EXPECTED: Final = {
    "model_type": "a table of settings",
    "dict_type": "a table",
    "list_type": "a list",
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "string_too_short": "at least {min_length} characters",
    "string_pattern_mismatch": "a text that matches {pattern}",
}
"""Descriptions for errors where the library's message names Python's types instead of the file's."""
_ENGINE_FORMS: Final = "'embedded', 'none', the URL of a server or a table of settings"
_LONGEST: Final = 60
"""Characters of a wrong value that a message shows."""


def check_settings(
    values: Mapping[str, Any], origin: str, *, strict: bool, is_one_setting: bool = False
) -> dict[str, Any]:
    """The same values, checked: only the keys that were set.

    Args:
        values: tables as in codec-gateway.toml.
        origin: how messages name the source.
        strict: whether `"1"` is not a number. TOML has types; the environment has only text.
        is_one_setting: whether `origin` names the setting itself (a flag, a variable), so that its key need not be.

    Raises:
        ConfigError: an unknown key or a wrong value; names the first five.
    """
    try:
        return Settings.model_validate(values, strict=strict).model_dump(exclude_unset=True)
    except ValidationError as error:
        problems = _problems(error.errors(include_url=False), values, is_one_setting=is_one_setting)
    raise ConfigError(f"{origin}: " + "; ".join(problems[:5]))


def _problems(found: Iterable[ErrorDetails], values: Mapping[str, Any], *, is_one_setting: bool) -> list[str]:
    """One sentence for each key: a value that may have several forms is refused once for each of them."""
    problems: list[str] = []
    for path, several in groupby(found, key=lambda details: _written(values, details["loc"])):
        forms = list(several)
        words = tuple(map(str, path))
        dotted = ".".join(words)
        if forms[0]["type"] == "extra_forbidden":
            problems.append(f"unknown key {dotted!r}: {suggest_key(words[-1], words[:-1])}")
            continue
        expected = _ENGINE_FORMS if words == ("engine",) else " or ".join(dict.fromkeys(map(_expected, forms)))
        shown = MASK if any(map(sounds_secret, words)) else _shown(_find(values, path))
        key = "" if is_one_setting else f"key {dotted!r}: "
        problems.append(f"{key}expected {expected}, got {shown}")
    return problems


def _expected(details: ErrorDetails) -> str:
    words = _EXPECTED.get(details["type"]) or details["msg"].removeprefix("Input should be ")
    return words.format(**details.get("ctx", {})) if details["type"] in _EXPECTED else words


def _shown(value: object) -> str:
    """A value as a file spells it."""
    match value:
        case Mapping():
            return "a table"
        case list():
            return "a list"
        case bool():
            return str(value).lower()
        case _:
            return f"{str(value)[:_LONGEST]!r}" if isinstance(value, str) else str(value)[:_LONGEST]


def valid_keys(path: tuple[str, ...] = ()) -> list[str]:
    """The keys that the table at `path` may have, for suggestions."""
    section: type[BaseModel] = Settings
    rest = iter(path)
    for key in rest:
        annotation: Any = section.model_fields[key].annotation
        kinds = (*get_args(annotation), annotation)
        section = next(each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel))
        if get_origin(annotation) is dict:
            # A name that a person chose.
            next(rest, None)
    return list(section.model_fields)


def suggest_key(key: str, path: tuple[str, ...] = ()) -> str:
    """Part of a sentence that says which key may have been meant."""
    keys = valid_keys(path)
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(keys)}"


def _written(values: object, path: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The part of a path that a person wrote. What follows it tells which of several forms of a value was tried."""
    for n in range(len(path)):
        if not isinstance(_find(values, path[:n]), Mapping | list):
            return path[:n]
    return path


def _find(values: object, path: tuple[int | str, ...]) -> object:
    for part in path:
        if isinstance(values, Mapping):
            values = cast("Mapping[object, object]", values).get(part)
        elif isinstance(values, list) and isinstance(part, int):
            values = cast("list[object]", values)[part]
    return cast("object", values)
