"""The operator's changes to single tools, applied to definitions and to the arguments of calls.

Turns a server's definition into the one that clients see, and a call's params into those that the server gets. Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

from gateway.config.overrides import ToolOverride


def overridden(definition: Mapping[str, Any], overrides: Iterable[ToolOverride]) -> dict[str, Any]:
    """The definition as clients see it, apart from its name; a later override counts before an earlier one."""
    shown = dict(definition)
    for override in overrides:
        texts = {"title": override.title, "description": override.description}
        shown |= {key: text for key, text in texts.items() if text is not None}
        if override.annotations:
            shown["annotations"] = {**_table(shown.get("annotations")), **override.annotations}
        if override.defaults:
            shown["inputSchema"] = _with_defaults(_table(shown.get("inputSchema")), override.defaults)
    return shown


def filled(params: dict[str, Any], overrides: Iterable[ToolOverride]) -> dict[str, Any]:
    """The params of `tools/call` with the arguments that the caller left out; the same object if there are none."""
    given = _table(params.get("arguments"))
    left_out: dict[str, Any] = {}
    for override in overrides:
        left_out |= {name: value for name, value in override.defaults.items() if name not in given}
    return {**params, "arguments": {**given, **left_out}} if left_out else params


def unknown_arguments(definition: Mapping[str, Any], override: ToolOverride) -> list[str]:
    """The arguments with a default that the tool does not have, as far as its schema tells."""
    known = _table(_table(definition.get("inputSchema")).get("properties"))
    return sorted(override.defaults.keys() - known.keys()) if known else []


def _with_defaults(schema: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    properties = _table(schema.get("properties"))
    shown = {name: {**_table(properties[name]), "default": defaults[name]} for name in properties if name in defaults}
    changed = {**schema, "properties": {**properties, **shown}} if shown else dict(schema)
    required: object = changed.pop("required", None)
    if isinstance(required, list) and (rest := [each for each in cast("list[Any]", required) if each not in defaults]):
        changed["required"] = rest
    return changed


def _table(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
