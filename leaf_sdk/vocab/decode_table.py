"""Ids to their bytes, for one vocabulary: a table that joins millions of them a second.

Ids are mostly dense, so the table is a list; a vocabulary with wide gaps gets a dict. An id that the vocabulary does
not have gives the bytes of U+FFFD. Knows nothing of how tokens are spelled.
"""

from collections.abc import Iterable, Mapping, Sequence

UNKNOWN = "\ufffd".encode()
_MAX_GAPS = 4
_SEQUENCES = (list, tuple)


class DecodeTable:
    """The bytes of every id."""

    def __init__(self, entries: Mapping[int, bytes]) -> None:
        size = max(entries, default=-1) + 1
        self._count = len(entries)
        self._sparse = entries if size > 1024 + _MAX_GAPS * len(entries) else None
        # None marks a gap, to tell it from a token that really has the bytes of U+FFFD.
        self._rows: Sequence[bytes | None] = () if self._sparse is not None else [*map(entries.get, range(size))]

    @classmethod
    def of_rows(cls, rows: Sequence[bytes | None]) -> "DecodeTable":
        """Return the table whose row i is the bytes of id i; None is a gap."""
        table = cls({})
        table._rows = rows
        table._count = len(rows) - rows.count(None)
        return table

    def __len__(self) -> int:
        return self._count

    def __contains__(self, token_id: int) -> bool:
        if self._sparse is not None:
            return token_id in self._sparse
        return 0 <= token_id < len(self._rows) and self._rows[token_id] is not None

    def get(self, token_id: int) -> bytes | None:
        """Return the bytes of an id, or None where the vocabulary has no such id."""
        if self._sparse is not None:
            return self._sparse.get(token_id)
        return self._rows[token_id] if 0 <= token_id < len(self._rows) else None

    def ids(self) -> Iterable[int]:
        """Return every id that has bytes."""
        if self._sparse is not None:
            return self._sparse
        return [token_id for token_id, row in enumerate(self._rows) if row is not None]

    def rows(self) -> Sequence[bytes | None] | None:
        """Return the rows of a dense table; None for a sparse one."""
        return self._rows if self._sparse is None else None

    def gaps(self) -> Sequence[int] | None:
        """Return the numbers below the last id that are not ids; None for a sparse table, which has too many."""
        if self._sparse is not None:
            return None
        return [] if self._count == len(self._rows) else [i for i, row in enumerate(self._rows) if row is None]

    def join(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of ids, joined."""
        # Asking whether `ids` is a Sequence would take as long as joining a short one.
        ids = ids if isinstance(ids, _SEQUENCES) else list(ids)
        try:
            if ids and min(ids) >= 0:
                return b"".join(map(self._rows.__getitem__, ids))  # pyright: ignore[reportArgumentType] - a gap raises
        except (IndexError, TypeError):
            pass
        return b"".join([UNKNOWN if (found := self.get(token_id)) is None else found for token_id in ids])
