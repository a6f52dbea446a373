"""Reads an env file (VS Code's and Cursor's `envFile`).

Turns lines of `NAME=value` into a dictionary; understands `#` comments, `export `, single and double quotes. Nothing in
it is expanded. It knows neither the file nor the server.
"""

import re

from gateway.errors import ConfigError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_.-]*)\s*=\s*(.*)")


def parse_env_file(text: str, origin: str) -> dict[str, str]:
    """The variables that the text sets; a later line wins.

    Raises:
        ConfigError: a line is neither empty, a comment nor NAME=value. Only its number is named, because it may hold a
            secret.
    """
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
