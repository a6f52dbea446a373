"""Cuts a turn where its client saw it end: before a stop string, or where a stream broke.

The client was shown less than the model wrote, and often the cut lies inside a token. The ids of whole tokens are kept,
and the rest of what was shown is tokenized. Pure.
"""

from collections.abc import Container, Sequence

from leaf_sdk.vocab import TokenMap


def cut_turn(
    ids: Sequence[int], content: str, told: str, token_map: TokenMap, hidden: Container[int] = ()
) -> list[int] | None:
    """Return the ids of a turn up to where its client saw it end; None where that place can't be determined.

    `content`: the whole text of the turn; `told`: the beginning of it that was shown; `hidden`: ids of which
    neither has a text.
    """
    pieces = [b"" if token_id in hidden else token_map.token_bytes(token_id) for token_id in ids]
    written, shown = b"".join(pieces), told.encode("utf-8", "replace")
    # The whole content is searched for, since what was shown may occur again after it.
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
