"""What a gateway that keeps texts would make of ids: their text is tokenized again and compared with them.

Turns the ids of a run into the places where such a gateway would hold different ids for the same bytes. It takes as
long as tokenizing does, too long for the event loop. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaf_sdk.vocab import TokenMap


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids whose text tokenizes to other ids."""

    start: int
    count: int
    others: tuple[int, ...]


def differences(ids: Sequence[int], token_map: TokenMap, *, specials: bool) -> list[Difference] | None:
    """The places where these ids' text tokenizes to other ids; None where text can't represent the ids at all.

    `specials`: whether markers in the text are read as special tokens, as engines do with a turn of the model.
    """
    known = [token_map.table.get(token_id) for token_id in ids]
    pieces = [piece for piece in known if piece is not None]
    if len(pieces) < len(known):
        return None
    written = b"".join(pieces)
    try:
        again = token_map.encode(written.decode(), specials=specials)
    except UnicodeDecodeError:
        return None
    others = [token_map.token_bytes(token_id) for token_id in again]
    if b"".join(others) != written:
        return None
    return list(_unequal(ids, pieces, again, others))


def _unequal(
    ids: Sequence[int], pieces: Sequence[bytes], again: Sequence[int], others: Sequence[bytes]
) -> Iterator[Difference]:
    """Cut both sequences wherever an id ends in both, and yield the pieces whose ids differ."""
    at = other = 0
    while at < len(ids):
        first, first_other = at, other
        here, there = len(pieces[at]), len(others[other]) if other < len(others) else 0
        at, other = at + 1, other + 1
        while here != there:
            if here < there:
                here, at = here + len(pieces[at]), at + 1
            else:
                there, other = there + len(others[other]), other + 1
        others_here = tuple(again[first_other:other])
        if tuple(ids[first:at]) != others_here:
            yield Difference(first, at - first, others_here)
