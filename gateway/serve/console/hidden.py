"""Which ids of a conversation spell a secret: they are shown as none, since an id is as good as its text.

Turns ids, their map and the values that must stand nowhere into numbers of ids. It takes as long as reading them takes:
not for the event loop. Pure.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from itertools import accumulate

from gateway.config.masking import secret_places
from leaf_sdk.vocab import TokenMap


def hidden_ids(ids: Sequence[int], token_map: TokenMap, secrets: Collection[str]) -> frozenset[int]:
    """The numbers of ids that spell a part of a secret, by the rules of the log."""
    pieces = [token_map.table.get(token_id) or b"" for token_id in ids]
    begins = list(accumulate(map(len, pieces), initial=0))
    # One character a byte: places in it are places in the bytes.
    text = b"".join(pieces).decode("latin-1")
    known = [secret.encode("utf-8", "replace").decode("latin-1") for secret in secrets]
    return frozenset(
        number
        for start, stop in secret_places(text, known)
        for number in range(bisect_right(begins, start) - 1, bisect_left(begins, stop))
    )
