"""A tool's result that was too large for the model, kept whole in token ids so that it can read on in it.

It belongs to the conversations that refer to it: it goes when the last answer that knows it is forgotten. Holds the ids
or knows where they are; does not read them. Pure.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol

if TYPE_CHECKING:
    from array import array

IdSource = Literal["leaf", "shim"]
_SOURCE_BYTES: Final = 96
"""Of one entry: a tuple and a number."""


class IdsElsewhere(Protocol):
    """Ids that are not in memory."""

    def read(self) -> "array[int]":
        """Read the ids. Raises `OSError`."""
        ...


@dataclass(slots=True, eq=False, weakref_slot=True)
class KeptResult:
    """One result. What its conversation knows of it stays, even when its ids are gone."""

    handle: str
    """Its name for the model."""
    owner: str
    tool: str
    """The tool that returned it."""
    map_id: str
    tokens: int
    sources: tuple[tuple[IdSource, int], ...]
    """Where consecutive ids came from, each with the place where they end; neighbours differ."""
    digest: bytes
    shape: str
    """What it is, in a line."""
    content: "array[int] | IdsElsewhere | None" = field(default=None, repr=False)
    """Its ids; None: they are no longer kept. Only the store (`context/result_store.py`) sets this."""

    @property
    def bytes_beside(self) -> int:
        """Bytes that it takes beside its ids, however few they are."""
        return len(self.sources) * _SOURCE_BYTES
