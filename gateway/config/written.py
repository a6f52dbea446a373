"""Names settings in an error as their author wrote them: the option, the environment variable, or the line of the file.

Turns the message of a `ConfigError` that names keys (`serve.port`) into one that a person finds again. It judges no
value.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from gateway.config.layers import PREFIX, Layer, flag_of

_KEY: Final = re.compile(r"(?<![\w.'/-])[a-z_]+(?:\.[a-z_]+)*(?![\w/-]|\.\w)")
_QUOTED: Final = re.compile(r"key '([\w.-]+)'")


def name_as_written(message: str, flags: Iterable[str], variables: Mapping[str, str], file: Path | None) -> str:
    """The message, with every key replaced that an option or a variable set, and the place of one from the file.

    Args:
        flags: dotted keys that were given as options.
        variables: environment variables by the dotted key that each sets.
        file: the gateway's own file, if there is one.
    """
    if file is not None and message.startswith(f"{file}: "):
        found = _QUOTED.search(message)
        line = None if found is None else line_of(file, found[1])
        return message if line is None else f"{file}:{line}{message.removeprefix(str(file))}"
    given = {**variables, **{key: flag_of(key) for key in flags}}
    first = _KEY.match(message)
    if first is None:
        return message
    named = _KEY.sub(lambda key: given.get(key[0], key[0]), message)
    line = None if named != message or file is None else line_of(file, first[0])
    return named if line is None else f"{file}:{line}: {named}"


def variable_of(dotted: str) -> str:
    """The environment variable that sets a key."""
    return PREFIX + dotted.upper().replace(".", "__")


def keys_of(layer: Mapping[str, Any], prefix: str = "") -> Iterable[str]:
    """The dotted keys of every value in a layer, and of its tables."""
    for key, value in layer.items():
        yield f"{prefix}{key}"
        if isinstance(value, dict):
            yield from keys_of(cast("Layer", value), f"{prefix}{key}.")


def line_of(file: Path, dotted: str) -> int | None:
    """The line of a TOML file on which a key stands; None if the file does not have it as a line of its own."""
    table = ""
    for number, line in enumerate(file.read_text(encoding="utf-8-sig").splitlines(), 1):
        text = line.strip()
        if text.startswith("[") and not text.startswith("[["):
            table = f"{_dotted(text.partition(']')[0] + ']')}."
            if table == f"{dotted}.":
                return number
        elif "=" in text and f"{table}{text.partition('=')[0].strip()}" == dotted:
            return number
    return None


def _dotted(header: str) -> str:
    try:
        layer: Layer = tomllib.loads(header)
    except tomllib.TOMLDecodeError:
        return ""
    return max(keys_of(layer), key=len, default="")
