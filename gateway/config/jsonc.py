"""Reads JSON as editors write it, with comments and trailing commas.

Turns text into a value, or into a ConfigError that names the line and the column. Comments and trailing commas are
blanked out in place, so that a position in the blanked text is a position in the file. A key that appears twice in one
object is an error: the reader could not know which one is meant. It knows nothing of servers.
"""

import json
import re
from typing import Any

from gateway.errors import ConfigError

# A string first, so that `//` inside a URL is not a comment.
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
# A comma with nothing before it is not a trailing one: `[,]` stays, and is refused.
_TRAILING_COMMA = re.compile(r'"(?:\\.|[^"\\\n])*"|[\[{,:]\s*,|,(?=\s*[}\]])', re.DOTALL)
_NOT_A_LINE_END = re.compile(r"[^\n]")


def parse_jsonc(text: str, origin: str) -> Any:
    """Read the value that the text holds.

    Args:
        text: the whole file.
        origin: how messages name it.

    Raises:
        ConfigError: it is not JSON (with line and column), or a key appears twice in one object.
    """
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
