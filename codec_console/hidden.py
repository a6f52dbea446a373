"""Which ids of a conversation spell a secret: they are not shown, since an id reveals its text.

Turns ids, their map and the secret values into the positions of these ids. It has to read the whole text, too long for
the event loop. Pure.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate

from gateway.escape import secret_places
from leaf_sdk.vocab import TokenMap


def hidden_ids(ids: Sequence[int], token_map: TokenMap, secrets: Collection[str]) -> frozenset[int]:
    """The positions of ids that spell a part of a secret, by the masking rules of the log."""
    pieces = {token_id: token_map.table.get(token_id) or b"" for token_id in set(ids)}
    # Latin-1 has one character per byte: places in the text are places in the bytes.
    text = b"".join(map(pieces.__getitem__, ids)).decode("latin-1")
    known = [secret.encode("utf-8", "replace").decode("latin-1") for secret in secrets]
    places = list(secret_places(text, known))
    if not places:
        return frozenset()
    sizes = {token_id: len(piece) for token_id, piece in pieces.items()}
    begins = list(accumulate(map(sizes.__getitem__, ids), initial=0))
    return frozenset(
        number for start, stop in places for number in range(bisect_right(begins, start) - 1, bisect_left(begins, stop))
    )
