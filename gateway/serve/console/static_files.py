"""The style sheet and the scripts of the console, read once: what a browser asks for is looked up, never opened.

Turns a folder into answers.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "static"
_TYPES: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


class StaticFile(NamedTuple):
    """One file."""

    data: bytes
    headers: Mapping[str, str]


def read_static_files() -> Mapping[str, StaticFile]:
    """All files of the folder by their names."""
    found = {
        path.name: StaticFile(path.read_bytes(), {"content-type": _TYPES[path.suffix]})
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in _TYPES
    }
    return MappingProxyType(found)
