"""What pinned tools said of themselves when they were first seen, and say now: for a person who asks what changed.

Turns definitions into a file beside the pins, each under its digest, and back. The pins judge by digests alone: what is
not kept here (too large, too many) can't be shown, and changes nothing else.
"""

import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final, cast

_MOST: Final = 4 * 1024 * 1024
"""Bytes of all definitions."""
_LONGEST: Final = 64 * 1024
"""Bytes of one."""


class PinnedDefinitions:
    """One file of them; who writes it holds the pins' folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, dict[str, Any]]:
        """Definitions by their digests; none where the file is not there or can't be used."""
        try:
            value: object = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            return {}
        table = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        return {key: cast("dict[str, Any]", each) for key, each in table.items() if isinstance(each, dict)}

    def keep(self, definitions: Mapping[str, dict[str, Any]], wanted: Collection[str]) -> None:
        """Keep these, by their digests, besides what is there; and nothing that is not wanted. Raises `OSError`."""
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
            draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            draft.write_text(json.dumps(kept), encoding="utf-8")
            draft.replace(self._path)
