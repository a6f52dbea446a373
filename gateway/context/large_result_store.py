"""The ids or bytes of results that were too large to show: in memory, in files, or no longer kept.

Bounded in bytes, in all and for each principal, and in time without use: the least recently used result is moved to a
file if there is a folder for them, or else dropped. A file has no name: nobody else can open it, and it goes with the
process. The store does not keep a result alive: conversations do, and the URIs that MCP clients got.
"""

import json
import os
import tempfile
import weakref
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from anyio.to_thread import run_sync

from gateway.config import LimitsConfig
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics

if TYPE_CHECKING:
    from gateway.context.memory.remembered import IdsElsewhere

# What a large result is, in a line: JSON with its keys, a table with its columns, or lines. Pure.

MOST_PARSED: Final = 1024 * 1024
"""Characters of JSON that are parsed: even in a thread, the parser lets nothing else run."""
_MOST_KEYS: Final = 12
_MOST_CHARACTERS: Final = 40
_LONGEST: Final = 400
"""Characters of the whole: the line stands beside the result, whose room it takes."""
_SEEN_ROWS: Final = 4
"""Rows after the header that must have as many columns."""
_LONGEST_ROW: Final = 65_536
"""Characters: to split a longer one would stop all other work for a moment."""
_SEPARATORS: Final = ("\t", "|", ";", ",")
_KINDS: Final[Mapping[type, str]] = {str: "string", bool: "boolean", int: "number", float: "number", type(None): "null"}


def shape_of(text: str) -> str:
    """Return what a text is."""
    shape = _json_shape(text) or _table_shape(text) or f"text of {_lines(text)}"
    return shape if len(shape) <= _LONGEST else shape[:_LONGEST] + "..."


def _json_shape(text: str) -> str:
    if len(text) > MOST_PARSED or text.lstrip()[:1] not in ("{", "["):
        return ""
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict) or not value:
        return f"JSON, {_described(cast('object', value))}"
    members = cast("dict[str, Any]", value)
    return f"JSON, an object with {_listed([f'{_name(key)} ({_described(each)})' for key, each in members.items()])}"


def _described(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {_keys(cast('dict[str, Any]', value))}"
    if not isinstance(value, list):
        return _KINDS[type(value)]
    items = cast("list[Any]", value)
    first = f", the first one {_item(items[0])}" if items else ""
    return f"an array of {_counted(len(items), 'item')}{first}"


def _item(value: object) -> str:
    if isinstance(value, list):
        return f"an array of {_counted(len(cast('list[Any]', value)), 'item')}"
    return f"an object with {_keys(cast('dict[str, Any]', value))}" if isinstance(value, dict) else _described(value)


def _keys(value: dict[str, Any]) -> str:
    return "no keys" if not value else f"the keys {_listed(map(_name, value))}"


def _table_shape(text: str) -> str:
    lines = text.split("\n", _SEEN_ROWS + 1)[: _SEEN_ROWS + 1]
    if len(lines) <= _SEEN_ROWS or max(map(len, lines)) > _LONGEST_ROW:
        return ""
    for separator in _SEPARATORS:
        rows = [line.strip().strip("|").split(separator) for line in lines]
        if len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            columns = _listed(_name(column.strip().strip('"')) for column in rows[0])
            return f"table of {_lines(text)} with the columns {columns}"
    return ""


def _lines(text: str) -> str:
    return _counted(text.count("\n") + (not text.endswith("\n")), "line")


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _listed(names: Iterable[str] | Sequence[str]) -> str:
    known = list(names)
    more = len(known) - _MOST_KEYS
    return ", ".join(known[:_MOST_KEYS]) + (f" and {more:,} more" if more > 0 else "")


def _name(text: str) -> str:
    """A name from outside, on one line and of bounded length."""
    # JSON can spell a lone surrogate, which can't be encoded.
    shown = " ".join(text.encode("utf-8", "replace").decode().split())
    return shown if len(shown) <= _MOST_CHARACTERS else shown[:_MOST_CHARACTERS] + "..."


_IN_FILES: Final = 8
"""Times as many bytes as in memory may lie in files."""
_MOST_FILES: Final = 256
"""Each file takes a descriptor, so each counts as at least this part of the bound."""

log = get_logger("agent")


class Storable(Protocol):
    """A result whose content the store keeps. Weak references to it must be possible."""

    owner: str
    content: "array[int] | IdsElsewhere | None"
    """Set by the store; None: it is no longer kept."""

    @property
    def bytes_beside(self) -> int:
        """Bytes that it takes beside its content."""
        ...


class SpilledIds:
    """Ids, or bytes, in a file without a name, which ends with this object."""

    def __init__(self, ids: "array[int]", folder: Path) -> None:
        """Write the ids. Raises `OSError`."""
        self._typecode = ids.typecode
        self._size = len(ids) * ids.itemsize
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            left = memoryview(ids).cast("B")
            while left:
                left = left[file.write(left) :]
            self._descriptor = os.dup(file.fileno())

    def __del__(self) -> None:
        """Close the file. Nobody else can: a thread may be reading it."""
        if hasattr(self, "_descriptor"):
            os.close(self._descriptor)

    def read(self) -> "array[int]":
        """Read the ids. Raises `OSError`, also where some are missing."""
        ids: array[int] = array(self._typecode)
        while (size := len(ids) * ids.itemsize) < self._size:
            if not (data := os.pread(self._descriptor, self._size, size)):
                raise OSError("the file of a kept result is too short")
            ids.frombytes(data)
        return ids


class ResultStore:
    """The kept results of one gateway."""

    def __init__(
        self,
        limits: LimitsConfig,
        metrics: Metrics,
        folder: Path | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`folder`: where files are made; None: what memory has no room for is dropped."""
        most = limits.kept_result_bytes
        self._memory = _Shelf(most, limits.principal_share)
        self._files = _Shelf(most * _IN_FILES, limits.principal_share)
        self._metrics = metrics
        metrics.follow_kept_results(lambda: self.size)
        self._seconds = limits.kept_result_seconds
        self._folder = folder
        self._clock = clock

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self._memory.size

    def has_room(self, size: int) -> bool:
        """Whether a result of so many bytes can be kept at all."""
        return 0 < size <= self._memory.share

    async def keep(self, result: Storable, ids: "array[int]") -> None:
        """Keep the ids or bytes of a result, for which `has_room` is true. Others may have to go."""
        self._expire()
        self._memory.remove(result)
        self._files.remove(result)
        self._metrics.result_kept()
        result.content = ids
        self._memory.add(result, len(ids) * ids.itemsize + result.bytes_beside, self._clock())
        for each in self._memory.excess(result.owner):
            await self._spill(each)

    async def ids_of(self, result: Storable) -> "array[int] | None":
        """Return the ids or bytes of a result; None: they are no longer kept."""
        self._expire()
        for shelf in (self._memory, self._files):
            shelf.touch(result, self._clock())
        content = result.content
        if content is None or isinstance(content, array):
            return content
        try:
            return await run_sync(content.read)
        except OSError as error:
            log.warning("the file of a kept result can't be read", reason=error.strerror)
            return None

    async def _spill(self, result: Storable) -> None:
        ids = result.content
        if self._folder is None or not isinstance(ids, array):
            result.content = None
            return
        moved: SpilledIds | None = None
        try:
            moved = await run_sync(SpilledIds, ids, self._folder)
        except OSError as error:
            log.warning("a kept result can't be moved to a file and is dropped", reason=error.strerror)
        finally:
            # It may have been kept anew meanwhile.
            if not self._memory.has(result):
                result.content = moved
        if moved is not None and result.content is moved:
            size = max(len(ids) * ids.itemsize + result.bytes_beside, self._files.most // _MOST_FILES)
            self._files.add(result, size, self._clock())
            for each in self._files.excess(result.owner):
                each.content = None

    def _expire(self) -> None:
        before = self._clock() - self._seconds
        for shelf in (self._memory, self._files):
            for each in shelf.unused_since(before):
                each.content = None


@dataclass(slots=True)
class _Place:
    result: "weakref.ref[Storable]"
    owner: str
    size: int
    used: float


class _Shelf:
    """The results in one kind of place, the least recently used first."""

    def __init__(self, most: int, share: float) -> None:
        self.most = most
        self.share = int(most * share)
        """Bytes that one principal may fill once there are several."""
        self._places: OrderedDict[int, _Place] = OrderedDict()
        self._own: dict[str, OrderedDict[int, None]] = {}
        """The keys of each owner, in the same order."""
        self._sizes: Counter[str] = Counter()

    @property
    def size(self) -> int:
        return self._sizes.total()

    def has(self, result: Storable) -> bool:
        return id(result) in self._places

    def add(self, result: Storable, size: int, now: float) -> None:
        key = id(result)
        self._remove(key)
        gone = weakref.ref(result, lambda _: self._remove(key))
        self._places[key] = _Place(gone, result.owner, size, now)
        self._own.setdefault(result.owner, OrderedDict())[key] = None
        self._sizes[result.owner] += size

    def remove(self, result: Storable) -> None:
        self._remove(id(result))

    def touch(self, result: Storable, now: float) -> None:
        if (place := self._places.get(id(result))) is not None:
            place.used = now
            self._places.move_to_end(id(result))
            self._own[place.owner].move_to_end(id(result))

    def excess(self, owner: str) -> Iterator[Storable]:
        """Take out what is too much, one by one."""
        while len(self._sizes) > 1 and self._sizes[owner] > self.share:
            yield from self._without_oldest(owner)
        while self.size > self.most:
            yield from self._without_oldest(max(self._sizes, key=lambda name: self._sizes[name]))

    def unused_since(self, before: float) -> Iterator[Storable]:
        """Take out what was used last before this time."""
        while self._places and (key := next(iter(self._places))) and self._places[key].used < before:
            yield from self._remove(key)

    def _without_oldest(self, owner: str) -> list[Storable]:
        return self._remove(next(iter(self._own[owner])))

    def _remove(self, key: int) -> list[Storable]:
        place = self._places.pop(key, None)
        if place is None:
            return []
        self._sizes[place.owner] -= place.size
        del self._own[place.owner][key]
        if not self._own[place.owner]:
            del self._own[place.owner], self._sizes[place.owner]
        result = place.result()
        return [] if result is None else [result]
