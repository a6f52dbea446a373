"""Recovers the ids that a llama.cpp stream loses.

The server holds back tokens that end in the middle of a UTF-8 character. When the character is complete, it sends one
message with all of the text and only the *last* id. `tokens_predicted` shows the gap. The text is the bytes of the
lost tokens followed by the bytes of the last one, so the lost ids are a split of known bytes into a known number of
tokens, in which every cut lies inside a character (otherwise the server would have sent the text earlier). Nearly
always only one split fits. If several do, the tokenizer's own choice wins, or else the one with the longest first
token, and the cache reuse of the next turn shows whether that was right.

Pure: it sees messages and a map, and knows nothing of HTTP.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from leaf_sdk.vocab import TokenMap
from leaf_sdk.vocab.utf8 import cuts_a_character

_LONGEST_PIECE = 64
"""Most bytes of a lost token: longer ones that end inside a character are not searched for."""
_MOST_SPLITS = 64
"""Splits after which the search stops, since the answer is a guess in any case."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """The ids of one stream message, including the lost ones."""

    ids: tuple[int, ...]
    found: int = 0
    """Lost ids that were recovered."""
    guessed: bool = False
    missed: int = 0
    """Lost ids that were not recovered; if no split fits, `ids` are those of the text by the map's own tokenizer."""


class IdRepair:
    """Follows one stream. Feed it every message in order."""

    def __init__(self, token_map: TokenMap) -> None:
        self._map = token_map
        self._received = 0
        self._by_bytes: dict[bytes, int] | None = None

    def feed(self, ids: Sequence[int], text: str, predicted: int) -> Repaired:
        """Complete one message.

        `ids`: those in the message; `text`: its `content`; `predicted`: the engine's count of all ids so far, which
        is not believed if it is less than have arrived.
        """
        arrived = self._received + len(ids)
        lost = max(predicted - arrived, 0)
        self._received = arrived + lost
        if not lost or not ids:
            return Repaired(tuple(ids), missed=lost)
        return self._complete(ids, text, lost)

    def follows(self, count: int, predicted: object) -> bool:
        """Whether a message of `count` ids lost none. If so, it is counted, and need not be fed."""
        if predicted != self._received + count:
            return False
        self._received += count
        return True

    def missing(self, predicted: int) -> int:
        """Ids still outstanding when the stream ends at `predicted`: the tail of a character that was cut off."""
        return max(predicted - self._received, 0)

    def _complete(self, ids: Sequence[int], text: str, lost: int) -> Repaired:
        tail = b"".join(self._visible(i) for i in ids)
        whole = text.encode()
        if not 0 < len(whole) - len(tail) <= lost * _LONGEST_PIECE:
            # The engine has counted wrong: nothing in the text is from a lost id, or more than such ids can have.
            return Repaired(tuple(ids), missed=lost)
        if not whole.endswith(tail):
            return Repaired(tuple(self._map.encode(text)), missed=lost)
        splits: list[tuple[int, ...]] = []
        for split in self._splits(whole[: len(whole) - len(tail)], lost):
            splits.append(split)
            if len(splits) == _MOST_SPLITS:
                break
        if not splits:
            return Repaired(tuple(self._map.encode(text)), missed=lost)
        own = tuple(self._map.encode(text))
        chosen = next((s for s in splits if (*s, *ids) == own), splits[0])
        return Repaired((*chosen, *ids), found=lost, guessed=len(splits) > 1)

    def _visible(self, token_id: int) -> bytes:
        """The bytes of an id as the server's text shows them: it leaves out control tokens, and padding."""
        is_text = token_id not in self._map.special_ids and self._map.has_id(token_id)
        return self._map.token_bytes(token_id) if is_text else b""

    def _splits(self, data: bytes, count: int, start: int = 0) -> Iterator[tuple[int, ...]]:
        """Every split of `data[start:]` into `count` tokens whose cuts lie inside characters, longest first."""
        if count == 0:
            if start == len(data):
                yield ()
            return
        for end in range(min(len(data), start + _LONGEST_PIECE), start, -1):
            token_id = self._ids_by_bytes().get(data[start:end])
            if token_id is None or not cuts_a_character(data[:end]):
                continue
            for rest in self._splits(data, count - 1, end):
                yield (token_id, *rest)

    def _ids_by_bytes(self) -> dict[bytes, int]:
        if self._by_bytes is None:
            self._by_bytes = {self._visible(i): i for i in self._map.vocab.values()}
        return self._by_bytes
