"""What is known of one file in which a slot's state is kept, and the note of it that lies beside a kept one.

Turns a `SlotFile` into JSON and back; what is read is checked field by field, since it comes from a disk. It opens
nothing and decides nothing.
"""

import hashlib
import json
import re
from array import array
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final, cast

NAME: Final = re.compile(r"[0-9a-f]{32}")
"""Of every file: drawn at random, and nothing that a file system or a server reads as anything else."""


@dataclass(slots=True, eq=False)
class SlotFile:
    """What a slot held, in a file."""

    name: str
    ids: list[int]
    """As far as they are known."""
    owner: str
    """The principal on whose behalf they were processed."""
    size: int
    """Bytes."""
    sha256: str
    held: int
    """Ids in it, as the engine counts: at the end there may be some that nobody was told of."""
    shared: bool = False
    """Whether it is the beginning that several conversations have in common."""
    slot: int | None = None
    """The slot whose conversation goes on with it at present."""
    used: int = 0
    """When its owner last asked for it, as a count."""
    floor: float = 0.0
    """What was worth giving up then."""
    density: float = 1.0
    """The part of its ids that no shared beginning has."""
    readers: int = 0
    """Who is about to restore it: while there are any it is not given up."""

    @property
    def rank(self) -> tuple[bool, float, int]:
        """What is given up first is lowest: what a slot holds anyway, then what saves least a byte, then the oldest."""
        return (self.slot is None, self.floor + self.density, self.used)


def write_note(file: SlotFile, engine: str) -> bytes:
    """The note beside a file; `engine`: what the engine is that wrote it."""
    ids = array("i", file.ids).tobytes()
    named = {name: getattr(file, name) for name in _FIELDS}
    return json.dumps({**named, "engine": engine, "ids": b64encode(ids).decode(), "ids_sha256": _digest(ids)}).encode()


def read_note(name: str, note: bytes, engine: str) -> SlotFile:
    """The file that a note tells of. Raises `ValueError` for anything else than a note of a file of that engine."""
    read: Any = json.loads(note)
    given = cast("dict[str, Any]", read if isinstance(read, dict) else {})
    if given.get("engine") != engine or given.get("name") != name:
        raise ValueError("it is no note of that file and engine")
    fields = {key: _typed(given.get(key), kind) for key, kind in _FIELDS.items()}
    ids = b64decode(_typed(given.get("ids"), str), validate=True)
    if _digest(ids) != given.get("ids_sha256"):
        raise ValueError("its ids are not those that were written")
    return SlotFile(ids=array("i", ids).tolist(), **fields)


_FIELDS: Final[dict[str, type]] = {
    "name": str,
    "owner": str,
    "size": int,
    "sha256": str,
    "held": int,
    "shared": bool,
}


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{value!r:.40} is no {kind.__name__}")
    return value


def _digest(ids: bytes) -> str:
    return hashlib.sha256(ids).hexdigest()
