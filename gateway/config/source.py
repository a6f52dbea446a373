"""Reads the values in a file: the gateway's own TOML, or JSON of other programs.

Turns a path into a dictionary, or into a ConfigError that names the file and says what to do. Every way in which a file
can be wrong before its meaning matters is handled here: missing, a folder, unreadable, too large, not UTF-8, empty, not
TOML, not JSON. It knows no keys.
"""

import tomllib
from pathlib import Path
from typing import Any, Final, cast

from gateway.config.jsonc import parse_jsonc
from gateway.errors import ConfigError

LARGEST: Final = 1024 * 1024
"""Bytes of one configuration file. Real ones hold a few thousand."""


def read_config_text(path: Path) -> str:
    """Return the text of a configuration file, without a byte order mark.

    Raises:
        ConfigError: it is missing, a folder, unreadable, larger than LARGEST or not UTF-8.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"{path}: no such file: give the path of an mcpServers JSON or a codec-gateway.toml"
        ) from None
    except IsADirectoryError:
        raise ConfigError(f"{path}: a folder: give the configuration file inside it") from None
    except OSError as error:
        raise ConfigError(f"{path}: can't be read ({error.strerror}): check its permissions") from None
    if len(raw) > LARGEST:
        raise ConfigError(f"{path}: larger than {LARGEST} bytes: this is not a configuration file")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}: save it as UTF-8") from None


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file, which may be empty: every setting has a default.

    Raises:
        ConfigError: see `read_config_text`; or it is not TOML (with line and column).
    """
    try:
        return tomllib.loads(read_config_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, a thousand nested lists
        raise ConfigError(f"{path}: a number is too long or a list nested too deeply: check the file") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; comments and trailing commas are allowed.

    Raises:
        ConfigError: see `read_config_text`; or it is empty, not JSON, or not an object.
    """
    text = read_config_text(path)
    if not text.strip():
        raise ConfigError(f'{path}: empty: expected {{"mcpServers": {{"NAME": {{"command": ...}}}}}}')
    value: object = parse_jsonc(text, str(path))
    if not isinstance(value, dict):
        raise ConfigError(f'{path}: holds {type(value).__name__}, not an object: expected {{"mcpServers": {{...}}}}')
    return cast("dict[str, Any]", value)
