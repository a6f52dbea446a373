"""One line of JSON in printable ASCII, so that no text inside it can begin a second line. It opens no file."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic_core import to_json


def stamp(when: datetime) -> str:
    """A time in UTC as lines show it."""
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def ascii_json(fields: Mapping[str, Any]) -> str:
    """JSON in printable ASCII: no caller can bring a line end, control character or direction mark into the file."""
    try:
        data = to_json(fields)
    except ValueError:
        # Half a surrogate pair, which only the slower writer accepts.
        data = b"\x7f"
    if data.isascii() and b"\x7f" not in data:
        return data.decode("ascii")
    return json.dumps(fields).replace("\x7f", "\\u007f")
