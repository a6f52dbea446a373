"""Replaces each `${...}` in a configured text by what it stands for.

Turns a text into (text, values that came from variables); the values are returned so that they can be masked wherever
the configuration is shown. The forms are those of VS Code, Cursor and Claude Code. There is one pass, so a variable's
value is never expanded again. It knows no file and no server: `where` names them in messages.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.errors import ConfigError

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
        """The text with every `${...}` replaced, and the values that came from the environment.

        Raises:
            ConfigError: a variable is not set, or a form is unknown.
        """
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
