"""What is known about a slot file, and the note that is stored beside it if it is kept.

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

from gateway.engine.slots.rewind import Checkpoints, reused

NAME: Final = re.compile(r"[0-9a-f]{32}")
"""The name of every file: drawn at random, without characters that a file system or a server could misread."""


@dataclass(slots=True, eq=False)
class SlotFile:
    """A file that holds what a slot held."""

    name: str
    ids: list[int]
    """The ids in it, as far as they are known."""
    owner: str
    """The principal on whose behalf they were processed."""
    size: int
    """Bytes."""
    sha256: str
    held: int
    """Number of ids in it, as the engine counts: at the end there may be some that were not reported."""
    shared: bool = False
    """Whether it is a beginning that several conversations share."""
    checkpoints: Checkpoints = None
    """Where what it holds can be cut."""
    answer: str = ""
    """The name of the answer whose ids it holds; "" after a restart."""
    question: int = 0
    """Ids up to the user's message that this answers; 0: not known."""
    slot: int | None = None
    """The slot that holds its conversation at present."""
    used: int = 0
    """When its owner last asked for it, as a counter."""
    floor: float = 0.0
    """What had been given up last by then was worth this much."""
    density: float = 1.0
    """The part of its ids that is in no shared beginning; that of a shared beginning counts twice."""
    readers: int = 0
    """How many are about to restore it; while there are any it is not given up."""

    def reused(self, prompt: list[int]) -> int:
        """How many ids of a prompt need not be processed once it is restored."""
        return reused(self.ids, self.checkpoints, prompt)

    @property
    def rank(self) -> tuple[bool, float, int]:
        """The sort key for giving files up, lowest first: those that a slot holds anyway, then those that save least
        per byte, then the oldest."""
        return (self.slot is None, self.floor + self.density, self.used)


def write_note(file: SlotFile, engine: str) -> bytes:
    """The note beside a file; `engine`: the identity of the engine that wrote it."""
    ids = array("i", file.ids).tobytes()
    named = {name: getattr(file, name) for name in (*_FIELDS, "checkpoints")}
    return json.dumps({**named, "engine": engine, "ids": b64encode(ids).decode(), "ids_sha256": _digest(ids)}).encode()


def read_note(name: str, note: bytes, engine: str) -> SlotFile:
    """The file that a note describes. Raises `ValueError` for anything but a note of this file and engine."""
    read: Any = json.loads(note)
    given = cast("dict[str, Any]", read if isinstance(read, dict) else {})
    if given.get("engine") != engine or given.get("name") != name:
        raise ValueError("it is not a note about this file and engine")
    fields = {key: _typed(given.get(key), kind) for key, kind in _FIELDS.items()}
    ids = b64decode(_typed(given.get("ids"), str), validate=True)
    if _digest(ids) != given.get("ids_sha256"):
        raise ValueError("its ids are not those that were written")
    return SlotFile(ids=array("i", ids).tolist(), checkpoints=_checkpoints(given.get("checkpoints")), **fields)


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
        raise ValueError(f"{value!r:.40} is not of type {kind.__name__}")
    return value


def _checkpoints(value: Any) -> Checkpoints:
    return None if value is None else tuple(_typed(each, int) for each in _typed(value, list))


def _digest(ids: bytes) -> str:
    return hashlib.sha256(ids).hexdigest()
