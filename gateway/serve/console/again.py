"""What a text path would make of ids: their text tokenized again, compared with them.

Turns the ids of a run into the places at which a gateway that keeps texts would hold other ids for the same bytes. It
takes as long as tokenizing takes: not for the event loop. Pure.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaf_sdk.vocab import TokenMap


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids that come back as others."""

    start: int
    count: int
    others: tuple[int, ...]


def differences(ids: Sequence[int], token_map: TokenMap, *, specials: bool) -> list[Difference] | None:
    """Where these ids come back as others; None where they are no text, so that no text path could hold them.

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
    """The parts of both, between places where both have an id's end, that are not the same id."""
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
