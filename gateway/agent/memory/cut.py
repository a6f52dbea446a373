"""A turn that ends where its client saw it end: behind a stop string's beginning, or where a stream broke.

What the client was shown ends before what the model wrote, often inside a token. The ids are kept up to there, and the
rest is tokenized. Pure.
"""

from collections.abc import Sequence

from leaf_sdk.vocab import TokenMap


def cut_turn(ids: Sequence[int], content: str, told: str, token_map: TokenMap) -> list[int] | None:
    """Give the ids of a turn up to where its client saw it end; None where that is not to be told.

    `content`: all that it says; `told`: the beginning of that, which was shown.
    """
    pieces = [token_map.token_bytes(token_id) for token_id in ids]
    written, shown = b"".join(pieces), told.encode("utf-8", "replace")
    # What was shown may stand once more behind it.
    at = written.rfind(content.encode("utf-8", "replace"))
    if not shown or at < 0:
        return None
    stop = at + len(shown)
    size, kept = len(written), len(ids)
    while kept:
        if size <= stop:
            rest = _text(written[size:stop])
            if rest is not None:
                return [*ids[:kept], *token_map.encode(rest)]
        kept -= 1
        size -= len(pieces[kept])
    return list(token_map.encode(told)) if at == 0 else None


def _text(written: bytes) -> str | None:
    try:
        return written.decode()
    except UnicodeDecodeError:
        return None
