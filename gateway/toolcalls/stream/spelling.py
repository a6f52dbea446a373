"""Token ids to text in which a marker can't be mistaken for its spelling, and the search for markers in it.

Ids that clients are not shown have no text.
"""

import codecs
import re
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from leaf_sdk.vocab import TokenMap

# How a format's markers appear in the text of one vocabulary, and the search for them.
#
# A marker that is one special token appears as its stand-in character, any other as its own characters.
# Text is searched only once: a finder says either where a marker begins, or from where one may still come, and only the
# text after that is ever held back. Knows nothing of buffers or streams.

_NOTHING = "(?!)"


class Delimiters:
    """Finds the first of several texts, or the place from which one of them may still come."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = frozenset(texts)
        starts = {text[:length] for text in texts for length in range(1, len(text))} - self._texts
        wholes = [re.escape(text) for text in _longest_first(self._texts)]
        partial = [re.escape(start) + r"\Z" for start in _longest_first(starts)]
        self._whole = re.compile("|".join(wholes) or _NOTHING)
        self._either = re.compile("|".join([*wholes, *partial]) or _NOTHING)

    def find(self, text: str, start: int, *, ended: bool) -> tuple[int, bool]:
        """Return where the text before the first delimiter ends, and whether a whole delimiter stands there.

        Unless the stream has `ended`, a proper prefix of a delimiter at the end of `text` ends it too. The leftmost
        place wins, so that the result does not depend on how the stream was cut.
        """
        found = (self._whole if ended else self._either).search(text, start)
        if found is None:
            return len(text), False
        return found.start(), found.group() in self._texts


@lru_cache(maxsize=256)
def delimiters(texts: tuple[str, ...]) -> Delimiters:
    """Return the finder for these texts, built once. No text may be the start of another."""
    return Delimiters(texts)


class Spelling:
    """Translates between the characters of a format's definition and those of one stream."""

    def __init__(self, guards: Mapping[str, str]) -> None:
        self._guards = {marker: guards[marker] for marker in _longest_first(guards)}
        self._plain = {ord(stand_in): marker for marker, stand_in in guards.items()}

    def spell(self, text: str) -> str:
        """Return a text of the format's definition as it appears in the stream."""
        for marker, stand_in in self._guards.items():
            text = text.replace(marker, stand_in)
        return text

    def plain(self, text: str) -> str:
        """Return a text of the stream as an event shows it: no stand-in leaves this package."""
        return text.translate(self._plain) if self._plain and not text.isascii() else text

    def finder(self, texts: tuple[str, ...]) -> Delimiters:
        """Return the finder for texts of the definition."""
        return _finder(self, texts)

    def guarded(self, marker: str) -> bool:
        """Whether the marker is one special token, so that no other token can spell it."""
        return marker in self._guards


@lru_cache(maxsize=64)
def spelling_of(guards: frozenset[tuple[str, str]]) -> Spelling:
    """Return the spelling with these stand-ins, made once: what is kept by it is found again."""
    return Spelling(dict(guards))


@lru_cache(maxsize=256)
def _finder(spelling: Spelling, texts: tuple[str, ...]) -> Delimiters:
    return delimiters(tuple(map(spelling.spell, texts)))


def _longest_first(texts: "frozenset[str] | set[str] | Mapping[str, str]") -> list[str]:
    return sorted(texts, key=lambda text: (-len(text), text))


# Token ids to text in which a marker that is one special token can't be mistaken for its spelling.
#
# The parser reads text, and ids guard it: such a token enters the text as one *stand-in*, a lone surrogate, which UTF-8
# never decodes to; the same characters from ordinary tokens stay ordinary. Remembers which id made which characters, so
# that a region can name its ids. Holds back an unfinished character. Knows nothing of calls.

_REPLACEMENT = "�".encode()
_FIRST_STAND_IN = 0xDC00
_DECODER: Final = codecs.getincrementaldecoder("utf-8")


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
        # A vocabulary may name an id that it does not have.
        with suppress(KeyError):
            if token_id is not None and vocabulary.token_bytes(token_id) == marker.encode():
                found[marker] = token_id, chr(_FIRST_STAND_IN + number)
    return found


class TokenReader:
    """Decodes one stream of ids. Offsets count characters of the text that it returned; a stand-in counts as one."""

    def __init__(self, vocabulary: Vocabulary, guards: Mapping[int, str], hidden: Container[int] = ()) -> None:
        """`guards`: stand-ins by the ids of markers; `hidden`: ids of special tokens whose text is not shown."""
        self._bytes_of = vocabulary.token_bytes
        self._guards = guards
        self._hidden = hidden
        self._decoder = _DECODER("replace")
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


# Which ids have no text for a client.
#
# Engines leave out a control token's text; ids have no text, so it is decided here. What a map calls special may also
# be markup that the model was taught to answer with (`<answer>`), which engines show and a map does not tell apart: so
# only tokens in the form of control tokens are hidden. An id that the map does not have has no text at all: a model's
# vocabulary is often padded beyond its tokenizer's, and engines leave such ids out of the text too.

_CONTROL: Final = re.compile(
    r"<[|｜].*[|｜]>|\[\|.*\|\]|</?s>|<(?:unk|pad|bos|eos|start_of_turn|end_of_turn)>|\[/?INST\]", re.DOTALL
)
_FOUND: Final[WeakKeyDictionary[TokenMap, tuple[dict[str, int], dict[str, Container[int]]]]] = WeakKeyDictionary()
"""The control tokens of each map, which may have thousands, and what is hidden for each list of texts."""
_LISTS: Final = 16
_LONGEST: Final = 1000
"""Characters of a list that is kept: the texts of one request come from its client."""


class _Hidden:
    """Some ids of a map, and all that it does not have."""

    def __init__(self, token_map: TokenMap, named: frozenset[int]) -> None:
        self._named = named
        self._table = token_map.table

    def __contains__(self, token_id: object) -> bool:
        return token_id in self._named or (type(token_id) is int and token_id not in self._table)


def hidden_ids(token_map: TokenMap, shown: Iterable[str] = ()) -> Container[int]:
    """Return the ids whose text is not shown.

    `shown`: texts for which somebody waits, such as a format's markers; tokens that occur in them are not hidden.
    """
    known = _FOUND.get(token_map)
    if known is None:
        tokens = token_map.special_texts.items()
        known = _FOUND[token_map] = {text: token_id for text, token_id in tokens if _CONTROL.fullmatch(text)}, {}
    control, lists = known
    waited = "\n".join(shown)
    hidden = lists.get(waited)
    if hidden is None:
        named = frozenset(token_id for text, token_id in control.items() if text not in waited)
        hidden = _Hidden(token_map, named)
        if len(waited) <= _LONGEST:
            if len(lists) >= _LISTS:
                lists.clear()
            lists[waited] = hidden
    return hidden


def spelled(token_map: TokenMap, token_id: int) -> bytes:
    """The bytes of a generated id: none for one that the map does not have."""
    return token_map.token_bytes(token_id) if token_map.has_id(token_id) else b""
