"""The style sheets and the scripts of the console, read once: a requested name is looked up, never opened as a path.

Turns a folder into files with their headers, by name.
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
    """Read the style sheets and scripts of the folder, by name."""
    found = {
        path.name: StaticFile(path.read_bytes(), {"content-type": _TYPES[path.suffix]})
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in _TYPES
    }
    return MappingProxyType(found)
