"""Reads each source of the gateway's own settings into a checked layer, and merges the layers.

Turns the flags, the environment and the TOML tables into dictionaries of the same shape (`settings.Settings`), in which
relative paths are already joined to the folder that they are relative to. It reads no file and builds no
`GatewayConfig`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, cast, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.access import VARIABLE
from gateway.config.gateway_config import CHATML
from gateway.config.settings import Settings
from gateway.config.source import INPUT_PREFIX, Expander
from gateway.errors import ConfigError
from gateway.escape import MASK, sounds_secret

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


PREFIX: Final = "CODEC_GATEWAY_"
_SHORT: Final = {f"{PREFIX}TOKEN": ("serve", "token"), VARIABLE: ("console", "token")}
"""Variables with names of their own."""
_LISTS = {
    ("tokens", "maps"),
    ("serve", "allowed_hosts"),
    ("serve", "cors_origins"),
    ("serve", "trusted_proxies"),
    ("serve", "oauth", "algorithms"),
    ("serve", "oauth", "scopes"),
}
_PATHS = (
    ("agent", "result_files"),
    ("serve", "keys"),
    ("audit", "path"),
    ("trajectories", "path"),
    ("replicas", "key_file"),
    ("replicas", "previous_key_file"),
    ("wire", "dictionary_msgpack"),
    ("wire", "dictionary_protobuf"),
)
# Kubernetes gives every pod such variables for a service called `codec-gateway`; they are not settings.
_KUBERNETES = re.compile(rf"{PREFIX}(SERVICE_(HOST|PORT)\w*=.*|PORT(_\d+_\w+)?=(tcp|udp|sctp)://.*|PORT_\d+_\w+=.*)")

Layer = dict[str, Any]


def layer_from_flags(overrides: Mapping[str, object], cwd: Path) -> Layer:
    """Turn dotted keys (`serve.port`) into a layer; a value of None is a flag that was not given. Raises `ConfigError`:
    an unknown key or a wrong value."""
    layer: Layer = {}
    for dotted, value in overrides.items():
        if value is not None:
            values = _spell_out(_nest(tuple(dotted.split(".")), _plain(value)))
            checked = check_settings(values, flag_of(dotted), strict=False, is_one_setting=True)
            layer = merge_layers(layer, checked)
    return _settle(layer, cwd)


def layer_from_environ(environ: Mapping[str, str], cwd: Path) -> tuple[Layer, list[str]]:
    """Turn variables (`CODEC_GATEWAY_SERVE__PORT=8600`) into a layer, and into sentences about those that mean nothing.

    An empty variable counts as not set. Lists are written with commas.

    Raises:
        ConfigError: an unknown nested key, or a wrong value.
    """
    layer: Layer = {}
    warnings: list[str] = []
    for name, text in environ.items():
        if (
            not (name.startswith(PREFIX) or name in _SHORT)
            or not text
            or name.startswith(INPUT_PREFIX)
            or _KUBERNETES.fullmatch(f"{name}={text}")
        ):
            continue
        path = _SHORT.get(name) or tuple(name.removeprefix(PREFIX).lower().split("__"))
        if len(path) == 1 and path[0] not in {
            "engine",
            "separator",
            "prefix",
            "tool_search",
            "safe_names",
            "mcp_config",
        }:
            meant = suggest_key(path[0])
            warnings.append(f"environment variable {name!r} is not a setting: {meant} (nested keys take '__')")
            continue
        if path[0] == "upstreams":
            raise ConfigError(f"environment variable {name!r}: servers can be set only in a file: see `mcp_config`")
        if path[:2] == ("approvals", "tools"):
            raise ConfigError(f"environment variable {name!r}: tools can be set only in a file: [approvals.tools]")
        if path[0] == "engines":
            raise ConfigError(
                f"environment variable {name!r}: several engines can be set only in a file: [engines.NAME]"
            )
        if path[0] == "views":
            raise ConfigError(f"environment variable {name!r}: views can be set only in a file: [views.NAME]")
        value = [part.strip() for part in text.split(",") if part.strip()] if path in _LISTS else text
        values = _spell_out(_nest(path, value))
        layer = merge_layers(layer, check_settings(values, name, strict=False, is_one_setting=True))
    return _settle(layer, cwd), warnings


def layer_from_toml(tables: Mapping[str, Any], origin: str, expander: Expander) -> Layer:
    """Turn the tables of codec-gateway.toml into a layer, in which of `upstreams` only overrides are expanded. Raises
    `ConfigError`: an unknown key, a wrong value, or a variable that is not set."""
    layer = check_settings(_spell_out(tables), origin, strict=True)
    upstreams = layer.pop("upstreams", {})
    for name, entry in upstreams.items():
        if "overrides" in entry and not entry.get("disabled"):
            entry["overrides"] = _expand(entry["overrides"], ("upstreams", name, "overrides"), origin, expander)
    expanded = cast("Layer", _expand(layer, (), origin, expander))
    return {**_settle(expanded, expander.workspace), "upstreams": upstreams}


def merge_layers(low: Layer, high: Mapping[str, Any]) -> Layer:
    """Lay `high` over `low`: tables are joined, values and lists replaced."""
    merged = dict(low)
    for key, value in high.items():
        under = merged.get(key)
        both = isinstance(under, dict) and isinstance(value, dict)
        merged[key] = merge_layers(cast("Layer", under), cast("Layer", value)) if both else value
    return merged


def flag_of(dotted: str) -> str:
    """The option that sets a key: its last part."""
    return f"--{dotted.rpartition('.')[2].replace('_', '-')}"


def _nest(path: tuple[str, ...], value: object) -> Layer:
    nested = value
    for key in reversed(path):
        nested = {key: nested}
    return cast("Layer", nested)


def _plain(value: object) -> object:
    """Convert paths and tuples, which Python code may pass, to the types of TOML."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item) for item in cast("Sequence[object]", value)]
    return value


def _spell_out(values: Mapping[str, Any]) -> Layer:
    """Turn the short form `engine = "embedded"` into a table."""
    engine: object = values.get("engine")
    if not isinstance(engine, str):
        return dict(values)
    table = {"kind": engine} if engine in {"none", "embedded"} else {"kind": "url", "url": engine}
    return {**values, "engine": table}


def _settle(layer: Layer, folder: Path) -> Layer:
    """Complete the layer's engines and make its paths absolute, so that no other layer can be mixed into them."""
    settled: Layer = {**layer, "engine": _settle_engine(layer.get("engine", {}), folder)}
    if "engines" in layer:
        settled["engines"] = {name: _settle_engine(each, folder) for name, each in layer["engines"].items()}
    tokens: Layer = dict(layer.get("tokens", {}))
    if "map" in tokens and tokens["map"] not in {"auto", "none"}:
        tokens["map"] = _absolute(str(tokens["map"]), folder)
    if "maps" in tokens:
        tokens["maps"] = [_absolute(path, folder) for path in tokens["maps"]]
    settled["tokens"] = tokens
    if settled.get("mcp_config"):
        settled["mcp_config"] = _absolute(settled["mcp_config"], folder)
    for table, key in _PATHS:
        if settled.get(table, {}).get(key):
            settled[table] = {**settled[table], key: _absolute(settled[table][key], folder)}
    return settled


def _settle_engine(values: Mapping[str, Any], folder: Path) -> Layer:
    engine: Layer = dict(values)
    if engine.get("url") and "kind" not in engine:
        engine["kind"] = "url"
    elif engine.get("kind", "url") != "url" and "url" not in engine:
        engine["url"] = None
    if engine.get("model"):
        engine["model"] = _absolute(engine["model"], folder)
    if engine.get("chat_template") not in (None, CHATML):
        engine["chat_template"] = _absolute(engine["chat_template"], folder)
    if engine.get("slot_files", "off") not in {"auto", "off"}:
        # Links are not resolved: a link must be noticed later, and refused.
        engine["slot_files"] = str(folder / Path(engine["slot_files"]).expanduser())
    return engine


def _absolute(path: str, folder: Path) -> str:
    return str(absolute_path(Path(path), folder))


def absolute_path(path: Path, folder: Path) -> Path:
    """A written path, as it is seen from a folder. Raises `ConfigError` where it leads nowhere."""
    try:
        return (folder / path.expanduser()).resolve()
    except (RuntimeError, ValueError) as error:
        # A loop of links, an unknown user's home, a NUL character.
        raise ConfigError(f"the path {str(path)!r} leads nowhere ({error}): correct it") from error


def _expand(value: object, path: tuple[str, ...], origin: str, expander: Expander) -> object:
    if isinstance(value, str):
        return expander.expand(value, f"{origin}: key {'.'.join(path)!r}")[0]
    if isinstance(value, dict):
        table = cast("Layer", value)
        return {key: _expand(item, (*path, key), origin, expander) for key, item in table.items()}
    if isinstance(value, list):
        return [_expand(item, path, origin, expander) for item in cast("list[object]", value)]
    return value
