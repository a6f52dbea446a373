"""Token ids to text in which a marker that is one special token can't be mistaken for its spelling.

The parser reads text, and ids guard it: such a token enters the text as one *stand-in*, a lone surrogate, which UTF-8
never decodes to; the same characters from ordinary tokens stay ordinary. Remembers which id made which characters, so
that a region can name its ids. Holds back an unfinished character. Knows nothing of calls.
"""

import codecs
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Protocol

_REPLACEMENT = "�".encode()
_FIRST_STAND_IN = 0xDC00


class Vocabulary(Protocol):
    """What this package asks of a tokenizer; `leaf_sdk.vocab.TokenMap` is one."""

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Special tokens by their text (role names such as "eos" may be among them)."""
        ...

    def token_bytes(self, token_id: int, /) -> bytes:
        """Return one token's bytes; a special token's are the UTF-8 of its text. Raises KeyError for an unknown id."""
        ...


def stand_ins(vocabulary: Vocabulary, markers: Iterable[str]) -> dict[str, tuple[int, str]]:
    """Return, for each marker that is exactly one special token, that token's id and its stand-in character."""
    found: dict[str, tuple[int, str]] = {}
    for number, marker in enumerate(markers):
        token_id = vocabulary.special_tokens.get(marker)
        if token_id is not None and _spells(vocabulary, token_id, marker):
            found[marker] = token_id, chr(_FIRST_STAND_IN + number)
    return found


def _spells(vocabulary: Vocabulary, token_id: int, marker: str) -> bool:
    try:
        return vocabulary.token_bytes(token_id) == marker.encode()
    except KeyError:
        return False


class TokenReader:
    """Decodes one stream of ids. Offsets count characters of the text that it returned; a stand-in counts as one."""

    def __init__(self, vocabulary: Vocabulary, guards: Mapping[int, str], hidden: Container[int] = ()) -> None:
        """`guards`: stand-ins by the ids of markers; `hidden`: ids of special tokens whose text is not shown."""
        self._bytes_of = vocabulary.token_bytes
        self._guards = guards
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._between = True
        """Whether the text so far ends with a whole character."""
        self._offset = 0
        # (id, first character, character after the last); both equal if the token only begins a character, or is empty.
        self._pieces: deque[tuple[int, int, int]] = deque()

    def feed(self, ids: Sequence[int]) -> str:
        """Return the text that these ids complete."""
        return self._read(ids[0]) if len(ids) == 1 else "".join([self._read(token_id) for token_id in ids])

    def close(self) -> str:
        """Return what is left: "", or one U+FFFD for a character that was never finished."""
        return self._decoder.decode(b"", final=True)

    def guards(self, token_id: int) -> bool:
        """Whether this id is a marker."""
        return token_id in self._guards

    def forget(self, offset: int) -> None:
        """Drop the ids whose characters are all before `offset`."""
        pieces = self._pieces
        while pieces and pieces[0][2] <= offset and pieces[0][1] < offset:
            pieces.popleft()

    def take(self, end: int) -> tuple[int, ...]:
        """Return the ids that made, in whole or in part, the characters from the last `forget` or `take` to `end`."""
        taken: list[int] = []
        pieces = self._pieces
        while pieces and pieces[0][1] < end:
            taken.append(pieces[0][0])
            if pieces[0][2] > end:
                # The rest of this token belongs to what follows, which needs the id too.
                break
            pieces.popleft()
        return tuple(taken)

    def _read(self, token_id: int) -> str:
        if token_id in self._guards:
            return self._read_special(token_id, self._guards[token_id])
        if token_id in self._hidden:
            return self._read_special(token_id, "")
        try:
            data = self._bytes_of(token_id)
        except KeyError:
            # An id that the vocabulary does not have must not make the stream fail.
            data = _REPLACEMENT
        # Most tokens are ASCII: the incremental decoder would take several times as long for the same result.
        text = data.decode("ascii") if self._between and data.isascii() else self._decode(data)
        start = self._offset
        self._offset = start + len(text)
        self._pieces.append((token_id, start, self._offset))
        return text

    def _read_special(self, token_id: int, text: str) -> str:
        # A character that a special token interrupts was never finished.
        broken = self._decoder.decode(b"", final=True)
        self._between = True
        start = self._offset + len(broken)
        self._offset = start + len(text)
        self._pieces.append((token_id, start, self._offset))
        return broken + text

    def _decode(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        self._between = not self._decoder.getstate()[0]
        return text
