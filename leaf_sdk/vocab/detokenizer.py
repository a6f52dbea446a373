"""A stream of token ids to a stream of text that never shows half a character.

Tokens end where merges end, not where characters do: an emoji can span four of them. The detokenizer holds an
unfinished character back until its last byte is there. Joined, its pieces are exactly `bytes.decode("utf-8",
"replace")` of all the bytes, however the ids were split. One detokenizer serves one stream. Knows nothing of markers
or of tool calls.
"""

import codecs
from collections.abc import Sequence

from .token_map import TokenMap


class Detokenizer:
    """Turns ids into text as they arrive: `feed` each batch, `close` at the end of the stream."""

    def __init__(self, token_map: TokenMap) -> None:
        self._map = token_map
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Sequence[int]) -> str:
        """Return the text that these ids complete; "" while a character is unfinished. Unknown ids become U+FFFD."""
        return self._decoder.decode(self._map.decode_bytes(ids))

    def close(self) -> str:
        """Return what is left: "", or one U+FFFD for a character that was never finished."""
        return self._decoder.decode(b"", final=True)
