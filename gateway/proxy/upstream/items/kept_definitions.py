"""The definitions of pinned tools, as first seen and as they are now, for a person who asks what changed.

Turns definitions into a file beside the pins, each under its digest, and back. The pins compare only digests: a
definition that is not kept here (too large, too many) can't be shown, but nothing else depends on it.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast

from gateway.config.private_file import replace_file

_MOST: Final = 4 * 1024 * 1024
"""Bytes of all definitions, at most."""
_LONGEST: Final = 64 * 1024
"""Bytes of one definition, at most."""


class PinnedDefinitions:
    """A file of definitions. A writer must hold the lock on the pins' folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """Return the definitions by digest; none if the file does not exist or can't be used."""
        try:
            value: object = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        table = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        return {key: cast("dict[str, Any]", each) for key, each in table.items() if isinstance(each, dict)}

    def keep(self, definitions: Mapping[str, dict[str, Any]], wanted: Collection[str]) -> None:
        """Add these definitions, by digest, and drop all whose digests are not `wanted`. Raises `OSError`."""
        before = self.read()
        kept = {digest: each for digest, each in {**before, **definitions}.items() if digest in wanted}
        left = _MOST
        for digest, each in list(kept.items()):
            size = len(json.dumps(each))
            if size > min(left, _LONGEST):
                del kept[digest]
            else:
                left -= size
        if kept.keys() != before.keys():
            replace_file(self._path, json.dumps(kept).encode())
