"""Checks values from a file or the environment against the settings that exist: unknown keys, wrong values.

Turns tables into the same tables, checked, or into one ConfigError that says for each problem what was expected, and
which key may have been meant. It knows no file.
"""

import difflib
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.masking import MASK, sounds_secret
from gateway.config.settings import EngineSection, Settings
from gateway.config.upstream_section import UpstreamSection
from gateway.errors import ConfigError

_EXPECTED = {
    "model_type": "a table of settings",
    "dict_type": "a table",
}
"""Descriptions for errors where the library's message names Python's types instead of the file's."""
_NAMED: Final[dict[str, type[BaseModel]]] = {"upstreams": UpstreamSection, "engines": EngineSection}
"""Tables of tables that a person names."""


def check_settings(values: Mapping[str, Any], origin: str, *, strict: bool) -> dict[str, Any]:
    """The same values, checked: only the keys that were set.

    Args:
        values: tables as in codec-gateway.toml.
        origin: how messages name the source.
        strict: whether `"1"` is not a number. TOML has types; the environment has only text.

    Raises:
        ConfigError: an unknown key or a wrong value; names the first five.
    """
    try:
        return Settings.model_validate(values, strict=strict).model_dump(exclude_unset=True)
    except ValidationError as error:
        problems = [_describe(details, values) for details in error.errors(include_url=False)]
    raise ConfigError(f"{origin}: " + "; ".join(problems[:5]))


def valid_keys(path: tuple[str, ...] = ()) -> list[str]:
    """The keys that the table at `path` may have, for suggestions."""
    section: type[BaseModel] = Settings
    for key in path:
        if section is UpstreamSection or key not in section.model_fields:
            return []
        section = _NAMED.get(key) or _section_of(section, key)
        if key in _NAMED:
            break
    return list(section.model_fields)


def _section_of(section: type[BaseModel], key: str) -> type[BaseModel]:
    return cast("type[BaseModel]", section.model_fields[key].annotation)


def suggest_key(key: str, path: tuple[str, ...] = ()) -> str:
    """Part of a sentence that says which key may have been meant."""
    keys = valid_keys(path)
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(keys)}"


def _describe(details: ErrorDetails, values: Mapping[str, Any]) -> str:
    path = tuple(str(part) for part in _written(values, details["loc"]))
    dotted = ".".join(path)
    if details["type"] == "extra_forbidden":
        return f"unknown key {dotted!r}: {suggest_key(path[-1], path[:-1])}"
    expected = _EXPECTED.get(details["type"]) or details["msg"].removeprefix("Input should be ")
    if details["type"] == "string_too_short":
        expected = f"at least {details.get('ctx', {}).get('min_length')} characters"
    if details["type"] == "string_pattern_mismatch":
        expected = f"a text that matches {details.get('ctx', {}).get('pattern')}"
    given = _find(values, details["loc"])
    shown = MASK if any(map(sounds_secret, path)) else f"{str(given)[:60]!r}"
    return f"key {dotted!r}: expected {expected}, got {type(given).__name__} {shown}"


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
