"""Reads everything that one server lists, so that one malformed item costs only itself.

Turns the items of a list as they came into those that clients can read, and what is wrong with the others into a log
line for each item and field, once, and into entries for `status` and `doctor`. The forms are those of `item_forms.py`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from gateway.observe.escape import cut_text, escape_text
from gateway.proxy.upstream.items.item_flaws import GONE, Flaw, list_in, object_in, shown
from gateway.proxy.upstream.items.item_forms import KEYS, Kind, read_item
from gateway.proxy.upstream.items.list_warnings import ListWarnings

_NAME: Final = 128
_REASON: Final = 300
_FOUND: Final = 1000
"""Malformed items that are kept, at most: each session may list others."""
_NONE: Final[Mapping[tuple[Kind, str], tuple[Flaw, ...]]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class MalformedField:
    """One field of one item that clients could not read as it came."""

    kind: Kind
    item: str
    """The item's name or URI; its place in the list if it has none."""
    field: str
    reason: str
    left_out: bool
    """Whether the item is left out of the list."""


class ItemReader:
    """Reads the lists of one server, and keeps what is wrong with them."""

    def __init__(self, server: str) -> None:
        """Start before anything is listed."""
        self._found = _NONE
        self._warnings = ListWarnings[MalformedField](
            server, "a listed field is malformed", "more listed fields are malformed"
        )

    @property
    def malformed(self) -> tuple[MalformedField, ...]:
        """What is wrong with the items listed last."""
        return tuple(_told(kind, label, flaw) for (kind, label), flaws in self._found.items() for flaw in flaws)

    def why_left_out(self, kind: Kind) -> dict[str, str]:
        """The items that are left out of a list, and why."""
        return {
            label: f"{flaw.field or 'the item'}: {flaw.reason}"
            for (of, label), flaws in self._found.items()
            for flaw in flaws[:1]
            if of == kind and flaw.left_out
        }

    def read(self, kind: Kind, items: Sequence[object], *, modern: bool) -> list[dict[str, Any]]:
        """Return the items that clients can read, each as it came if nothing is wrong with it."""
        read: list[dict[str, Any]] = []
        found: dict[tuple[Kind, str], tuple[Flaw, ...]] = {}
        listed: set[tuple[Kind, str]] = set()
        for number, item in enumerate(items, start=1):
            flaws: list[Flaw] = []
            result = read_item(kind, item, flaws, modern=modern)
            key = kind, _label(kind, item, number)
            listed.add(key)
            if flaws:
                found[key] = tuple(flaws)
            if result is not None:
                read.append(result)
        if self._found:
            listed |= {(kind, _place(number)) for number in range(1, len(items) + 1)}
        # Each session has its own list, which may be shorter: an item stays malformed until it is seen to be fine.
        before = {key: flaws for key, flaws in self._found.items() if key not in listed}
        if found or len(before) != len(self._found):
            self._found = dict([*found.items(), *before.items()][:_FOUND])
        self._warnings.warn([_told(*key, flaw) for key, flaws in found.items() for flaw in flaws], _shown)
        return read

    def read_page(self, kind: Kind, field: str, page: Mapping[str, Any]) -> list[object]:
        """Return the items in one page of a list; none if the page holds no list."""
        value: object = page.get(field, GONE)
        if (items := list_in(value)) is not None:
            return items
        reason = f"expected a list, got {shown(value)}; it is read as an empty one"
        self._warn_of_list(kind, field, reason)
        return []

    def read_cursor(self, kind: Kind, cursor: object, seen: Collection[str]) -> str | None:
        """Return the cursor of the next page; None if this page is the last. `seen`: the cursors before it."""
        is_known = isinstance(cursor, str) and cursor in seen
        if isinstance(cursor, str) and cursor and not is_known:
            return cursor
        if cursor is not None:
            why = f"{shown(cursor)} came before" if is_known else f"expected a cursor, got {shown(cursor)}"
            self._warn_of_list(kind, "nextCursor", f"{why}; the list is taken to end here")
        return None

    def _warn_of_list(self, kind: Kind, field: str, reason: str) -> None:
        self._warnings.warn([MalformedField(kind, "the list", field, reason, left_out=False)], _shown)


def _label(kind: Kind, item: object, number: int) -> str:
    name: object = (object_in(item) or {}).get(KEYS[kind])
    return cut_text(name, _NAME) if isinstance(name, str) else _place(number)


def _place(number: int) -> str:
    return f"number {number} in the list"


def _told(kind: Kind, label: str, flaw: Flaw) -> MalformedField:
    return MalformedField(kind, label, flaw.field, flaw.reason, flaw.left_out)


def _shown(subject: MalformedField) -> Mapping[str, object]:
    return {
        "list": subject.kind,
        "item": escape_text(subject.item, _NAME),
        "field": subject.field,
        "reason": escape_text(subject.reason, _REASON),
        "left_out": subject.left_out,
    }
