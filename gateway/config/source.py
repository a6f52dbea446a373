"""Reads the values in a file (TOML, JSON as editors write it, an env file), and replaces each `${...}` in them."""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from gateway.errors import ConfigError

# Comments and trailing commas are blanked out in place, so that a position in the blanked text is a position in the
# file. A key that appears twice in one object is an error: the reader could not know which one is meant.

# A string first, so that `//` inside a URL is not a comment.
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# A comma with nothing before it is not a trailing one: `[,]` stays, and is refused.
_TRAILING_COMMA = re.compile(r'"(?:\\.|[^"\\\n])*"|[\[{,:]\s*,|,(?=\s*[}\]])', re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")


def parse_jsonc(text: str, origin: str) -> Any:
    """Read the value that the text holds. `text`: the whole file. `origin`: how messages name it. Raises `ConfigError`:
    it is not JSON (with line and column), or a key appears twice in one object."""
    without_comments = _TOKEN.sub(_blank_unless_string, text)
    blanked = _TRAILING_COMMA.sub(lambda match: " " if match.group() == "," else match.group(), without_comments)

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ConfigError(f"{origin}: key {twice!r} appears twice in one object: keep one of them")
        return found

    try:
        return json.loads(blanked, object_pairs_hook=build)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{origin}: not JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, a thousand nested lists
        raise ConfigError(f"{origin}: a number is too long or a list nested too deeply: check the file") from None


def _blank_unless_string(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith('"') else _NOT_A_LINE_END.sub(" ", found)


LARGEST: Final = 1024 * 1024
"""Bytes of one configuration file. Real ones hold a few thousand."""


def read_config_text(path: Path) -> str:
    """Return the text of a configuration file, without a byte order mark. Raises `ConfigError`: it is missing, a
    folder, unreadable, larger than LARGEST or not UTF-8."""
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
    """Return the tables of a TOML file, which may be empty: every setting has a default. Raises `ConfigError`: see
    `read_config_text`; or it is not TOML (with line and column)."""
    try:
        return tomllib.loads(read_config_text(path))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    except (ValueError, RecursionError):  # a number of thousands of digits, a thousand nested lists
        raise ConfigError(f"{path}: a number is too long or a list nested too deeply: check the file") from None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; comments and trailing commas are allowed. Raises `ConfigError`: see
    `read_config_text`; or it is empty, not JSON, or not an object."""
    text = read_config_text(path)
    if not text.strip():
        raise ConfigError(f'{path}: empty: expected {{"mcpServers": {{"NAME": {{"command": ...}}}}}}')
    value: object = parse_jsonc(text, str(path))
    if not isinstance(value, dict):
        raise ConfigError(f'{path}: holds {type(value).__name__}, not an object: expected {{"mcpServers": {{...}}}}')
    return cast("dict[str, Any]", value)


# VS Code's and Cursor's `envFile`: `#` comments, `export `, single and double quotes. Nothing in it is expanded.

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")


def parse_env_file(text: str, origin: str) -> dict[str, str]:
    """The variables that the text sets; a later line wins. Raises `ConfigError`: a line is neither empty, a comment nor
    NAME=value. Only its number is named, because it may hold a secret."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            raise ConfigError(f"{origin}: line {number}: expected NAME=value")
        found[match.group(1)] = _unquote(match.group(2))
    return found


def _unquote(value: str) -> str:
    for quote in ('"', "'"):
        if value.startswith(quote) and (end := value.find(quote, 1)) > 0:
            return value[1:end]
    return value.partition(" #")[0].rstrip()


# The forms are those of VS Code, Cursor and Claude Code. There is one pass, so a variable's value is never expanded
# again.

INPUT_PREFIX: Final = "CODEC_GATEWAY_INPUT_"
_FORM = re.compile(r"\$\{([^{}]*)\}")
_VARIABLE = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)
_KNOWN = "${X}, ${env:X}, ${X:-default}, ${workspaceFolder}, ${workspaceFolderBasename}, ${userHome}"


def input_variable(name: str) -> str:
    """The environment variable that answers `${input:name}`: `github-token` is CODEC_GATEWAY_INPUT_GITHUB_TOKEN."""
    return INPUT_PREFIX + re.sub(r"[^A-Za-z0-9]", "_", name).upper()


@dataclass(frozen=True, slots=True)
class Expander:
    """What `${...}` may stand for in one file."""

    environ: Mapping[str, str]
    workspace: Path
    """What `${workspaceFolder}` stands for: absolute."""

    def expand(self, text: str, where: str) -> tuple[str, frozenset[str]]:
        """The text with every `${...}` replaced, and the values that came from the environment. Raises `ConfigError`: a
        variable is not set, or a form is unknown."""
        used: set[str] = set()

        def replace(match: re.Match[str]) -> str:
            value, secret = self._resolve(match.group(1), where)
            if secret and value:
                used.add(value)
            return value

        return _FORM.sub(replace, text), frozenset(used)

    def _resolve(self, inner: str, where: str) -> tuple[str, bool]:
        folder = self._folder(inner)
        if folder is not None:
            return folder, False
        if inner.startswith("input:"):
            return self._answer_input(inner, where), True
        match = _VARIABLE.fullmatch(inner)
        if match is None:
            raise ConfigError(f"{where}: {'${' + inner + '}'!r} is not a form that the gateway knows: use {_KNOWN}")
        name, default = match.groups()
        if name in self.environ and (self.environ[name] or default is None):
            return self.environ[name], True
        if default is None:
            raise ConfigError(f"{where}: the environment variable {name!r} is not set: set it, or write the value")
        return default, False

    def _folder(self, inner: str) -> str | None:
        match inner:
            case "workspaceFolder":
                return str(self.workspace)
            case "workspaceFolderBasename":
                return self.workspace.name
            case "userHome":
                return str(Path.home())
            case "pathSeparator" | "/":
                return "/"
            case _:
                return None

    def _answer_input(self, inner: str, where: str) -> str:
        variable = input_variable(inner.removeprefix("input:"))
        answer = self.environ.get(variable)
        if answer is None:
            raise ConfigError(
                f"{where}: {'${' + inner + '}'!r} asks a person, which a gateway can't do: "
                f"set the environment variable {variable} instead"
            )
        return answer
