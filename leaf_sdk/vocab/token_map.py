"""A tokenizer as data: text to ids and back, for one vocabulary that is named by the hash of its bytes.

`encode` treats its text as ordinary text: no spelling of `<|im_end|>` in it can become the control token. The special
ids are kept out of the tables that encode, so this holds by construction, not by a check. Only a chat template, which
is ours, is encoded with `specials=True`. The objects that encode are built when the first text is encoded.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from leaf_sdk.errors import MapUnsupported, TextNotUnicode, UnknownTokenId

from .blocks import ToolCalling, ZstdDictionary
from .byte_level import token_bytes
from .decode_table import DecodeTable
from .encoding import SPACE, Encode, byte_level_encoder, metaspace_encoder, spaced
from .pre_tokenizers import PreTokenizer
from .tokenizer import Algorithm, Encoder, Metaspace, Normalizer

__all__ = ["TokenMap", "ToolCalling"]

_MARKER = re.compile(r"<\|[A-Za-z0-9_-]+\|>")
_BYTE = re.compile("<0x([0-9A-F]{2})>")


_COMPARED = (
    *("encoder", "algorithm", "normalizer", "ignore_merges", "metaspace", "byte_fallback", "added_tokens"),
    *("pre_tokenizer", "special_texts", "vocab"),
)

CANNOT_ENCODE = (
    "the map only says how to decode, and guessed ids would be wrong for the model; "
    "build a map from the model's own tokenizer with `codec-leaf map build`"
)


def _without(separator: str, text: str) -> str:
    return text.replace(separator, "") if separator else text


@dataclass(frozen=True, eq=False, repr=False)
class TokenMap:
    """One tokenizer. Two maps are the same exactly when they have the same `map_id`."""

    id: str
    """What its maker calls it, `org/family`; says nothing about the bytes."""
    version: str
    map_id: str
    """`sha256:<hex>` of the bytes that it was read from."""
    vocab: Mapping[str, int]
    """Raw tokens as `encoder` spells them, including special tokens."""
    special_tokens: Mapping[str, int]
    merges: Sequence[tuple[str, str]]
    pre_tokenizer: PreTokenizer | None
    encoder: Encoder | None = "byte_level"
    """How raw tokens spell bytes; None in a map whose tokens are plain text."""
    tool_calling: ToolCalling | None = None
    normalizer: Normalizer | None = None
    ignore_merges: bool = False
    """Whether a piece that is itself a token skips the merges (Llama 3)."""
    algorithm: Algorithm | None = "bpe"
    """None in a map that can decode but not encode: see `can_encode`."""
    metaspace: Metaspace | None = None
    scores: Sequence[float] = ()
    """Unigram: the score of each token, in the order of `vocab`."""
    byte_fallback: tuple[int, int] | None = None
    """The ids of the bytes 0x00 and 0xFF; those of all others are between them."""
    added_tokens: Sequence[str] = ()
    """Added tokens that ordinary text may spell: runs of blanks, HTML tags."""
    zstd_dictionaries: Sequence[ZstdDictionary] = ()
    published_at: str | None = None

    def __repr__(self) -> str:
        """Show the name and the hash; the vocabulary would fill pages."""
        return f"TokenMap({self.id!r}, {self.map_id!r})"

    def __len__(self) -> int:
        """Count the ids, special ones included."""
        return len(self.table)

    def encode(self, text: str, *, specials: bool = False, separator: str = "") -> list[int]:
        """Return the ids of a text, without BOS or EOS.

        With `specials`, spellings of special tokens become their ids: for our own templates only, never for text from
        outside. Where one text contains both, a `separator` inside a spelling keeps it ordinary. The separator itself
        is left out; a special token of a single character can't contain one, so that character is then always ordinary
        text. Bytes that the vocabulary can't spell are left out, as the engine does.

        Raises:
            TextNotUnicode: the text holds a lone surrogate.
            MapUnsupported: the map can only decode (see `can_encode`), or its merges can't be built.
        """
        if specials and self.special_texts:
            return [token_id for part in self._split_specials(text, separator) for token_id in part]
        return self._encode_ordinary(_without(separator, text))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids: special tokens as their own text, invalid UTF-8 and unknown ids as U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", "replace")

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """Return the bytes of ids, which need not form whole characters; an unknown id becomes the bytes of U+FFFD."""
        return self.table.join(ids)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes of one token; a special token's are the UTF-8 of its text.

        Raises:
            UnknownTokenId: the map has no such id (a KeyError too).
        """
        found = self.table.get(token_id)
        if found is None:
            raise UnknownTokenId(token_id, self.map_id)
        return found

    def has_id(self, token_id: int) -> bool:
        """Return whether the map has this id. (The number of ids does not tell: they may have gaps.)"""
        return token_id in self.table

    @property
    def exact_decode(self) -> bool:
        """Whether decoding the ids of a text returns that text: not if a normalizer or an added space changed it."""
        exact_spaces = self.metaspace is None or (self.metaspace.prefix == "never" and not self.metaspace.collapse)
        return self.normalizer is None and exact_spaces

    @property
    def can_encode(self) -> bool:
        """Whether the map says enough to encode exactly. Version 1 maps and maps of plain text can only decode."""
        return self.algorithm is not None

    def is_same_tokenizer(self, other: "TokenMap") -> bool:
        """Return whether two maps are the same tokenizer: all that encoding and decoding use is equal."""
        return all(getattr(self, name) == getattr(other, name) for name in _COMPARED) and (
            list(self.merges) == list(other.merges) and list(self.scores) == list(other.scores)
        )

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Every added, control or marker id: ordinary text never gets one, and ids from outside may not include one.

        A vocabulary entry of the form `<|name|>` counts as one even where the map does not list it.
        """
        return frozenset([*self.special_tokens.values(), *map(self.vocab.__getitem__, self._shaped)])

    @cached_property
    def special_texts(self) -> dict[str, int]:
        """Ids of special tokens by the text that a template writes; a role's name ("eos") does not spell its token."""
        spelled = {token: self.vocab[token] for token in self._shaped}
        spelled |= {name: i for name, i in self.special_tokens.items() if self.vocab.get(name) == i}
        if unnamed := self.special_ids.difference(spelled.values()):
            spelled |= {token: i for token, i in self.vocab.items() if i in unnamed}
        known = frozenset(spelled.values())
        return spelled | {name: i for name, i in self.special_tokens.items() if i not in known}

    @cached_property
    def _shaped(self) -> list[str]:
        return [token for token in self.vocab if token[:2] == "<|" and _MARKER.fullmatch(token)]

    @cached_property
    def ordinary_ids(self) -> frozenset[int]:
        """Every id that ordinary text may get: all ids of the map except the special ones."""
        return frozenset(self.table.ids()) - self.special_ids

    @cached_property
    def table(self) -> DecodeTable:
        """The bytes of every id."""
        table = {token_id: name.encode() for name, token_id in self.special_tokens.items()}
        special = self.special_ids
        bytes_of = {"byte_level": token_bytes, "metaspace": self._metaspace_bytes, None: str.encode}[self.encoder]
        for token, token_id in self.vocab.items():
            table[token_id] = token.encode() if token_id in special else bytes_of(token)
        return DecodeTable(table)

    def _metaspace_bytes(self, token: str) -> bytes:
        byte = _BYTE.fullmatch(token) if self.byte_fallback and token.startswith("<0x") else None
        return bytes.fromhex(byte[1]) if byte else token.replace(SPACE, " ").encode()

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.special_texts, key=lambda text: (-len(text), text))
        return re.compile("|".join(map(re.escape, longest_first)))

    def _split_specials(self, text: str, separator: str) -> Iterator[list[int]]:
        at = 0
        for match in self._special_pattern.finditer(text):
            if separator and len(match.group()) == 1:
                continue
            yield self._encode_ordinary(_without(separator, text[at : match.start()]), first=at == 0)
            yield [self.special_texts[match.group()]]
            at = match.end()
        yield self._encode_ordinary(_without(separator, text[at:]), first=at == 0)

    def _encode_ordinary(self, text: str, *, first: bool = True) -> list[int]:
        if not text:
            return []
        try:
            if self.metaspace is not None:
                text = spaced(text, self.metaspace, first=first, keep_spaces=bool(self.added_tokens))
            return self._encode(text)
        except (TypeError, UnicodeEncodeError):
            raise TextNotUnicode(
                f"text of {len(text)} characters holds a lone surrogate, expected Unicode text; "
                "decode it from UTF-8 or UTF-16 before it is tokenized"
            ) from None

    @cached_property
    def _encode(self) -> Encode:
        special = [token for token in self.special_texts if self.vocab.get(token) in self.special_ids]
        # Not dict(vocab): a read-only view is copied entry by entry.
        ordinary = dict(zip(self.vocab, self.vocab.values(), strict=True))
        for token in special:
            del ordinary[token]
        if self.encoder == "byte_level" and self.pre_tokenizer is not None:
            return byte_level_encoder(
                ordinary,
                self.merges,
                self.pre_tokenizer,
                special=special,
                normalizer=self.normalizer,
                ignore_merges=self.ignore_merges,
                added=self.added_tokens,
            )
        if self.algorithm is None or self.metaspace is None or self.byte_fallback is None:
            what = f"encoding with map {self.id!r}"
            raise MapUnsupported(f"{what} is refused: {CANNOT_ENCODE}", what=what)
        return metaspace_encoder(
            ordinary,
            self.merges,
            self.metaspace,
            special=special,
            algorithm=self.algorithm,
            scores=dict(zip(self.vocab, self.scores, strict=False)),
            byte_ids=range(self.byte_fallback[0], self.byte_fallback[1] + 1),
            added=self.added_tokens,
            ignore_merges=self.ignore_merges,
        )
