"""Text is cut here exactly as the library cuts it, or not at all; and what is remembered of it is bounded.

In the suite each cut sees every character beside one of five neighbours, or of two for rare ones; in `make fuzz`,
beside all of them.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import BPE

from leaf_sdk.testing import texts
from leaf_sdk.testing.samples import samples
from leaf_sdk.vocab.byte_level import ALPHABET
from leaf_sdk.vocab.expressions import NUMERALS, Alphabet, translated
from leaf_sdk.vocab.gguf_names import GGUF_NAMES
from leaf_sdk.vocab.known_pieces import LONGEST_PIECE, MOST, KnownPieces, PieceIds
from leaf_sdk.vocab.piece_cut import AT_ONCE, PieceCut
from leaf_sdk.vocab.pre_tokenizers import GPT2, PreTokenizer, to_tokenizers
from leaf_sdk.vocab.programs import CJK
from leaf_sdk.vocab.tiktoken_file import CUTS
from tests.cases import IN_FULL, each_of

_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
FAMILIES = {
    **{f"tiktoken {name}": cut for name, cut in CUTS.items()},
    **{f"gguf {name}": known.pre_tokenizer for name, known in GGUF_NAMES.items()},
    "cl100k": PreTokenizer(_CL100K),
    "matches a part": PreTokenizer(r"\p{L}+|\p{N}"),
    "numerals as expressions know them": PreTokenizer(GPT2.pattern, before=(r"[\p{N}]",)),
    "ideographs": PreTokenizer(GPT2.pattern, before=(CJK,)),
}
CUTTERS = {cut: (to_tokenizers(cut), PieceCut(cut.stages)) for cut in FAMILIES.values()}
EACH_FAMILY = pytest.mark.parametrize("cut", CUTTERS, ids=list({cut: name for name, cut in FAMILIES.items()}.values()))
LEFT_TO_THE_LIBRARY = {cut for cut in CUTTERS if not max("".join(cut.stages)) <= "\uffff"}
"""Cuts that name characters beyond the basic plane; text with such characters is not cut here."""
BASIC_PLANE = [code for code in range(0x10000) if not 0xD800 <= code < 0xE000]
BEYOND = [*range(0x10000, 0x20000, 37), *range(0x20000, 0x110000, 0xFFF)]
JOINTS = ["a{}b", "'{}", " {}1", "{0}{0}", ".{}\n"]
SHARES = 1 if IN_FULL else len(JOINTS)
BEYOND_JOINTS = ["a{}b", " {}1."]
BEYOND_SHARES = 1 if IN_FULL else len(BEYOND_JOINTS)
SAMPLES = list(samples(1500 if IN_FULL else 400))


def ours(cut, text):
    found = CUTTERS[cut][1].pieces(text)
    return None if found is None else list(found)


def theirs(cut, text):
    """As the library cuts: its pieces are spelled in the alphabet of bytes, their places are not."""
    return [text[start:end] for _, (start, end) in CUTTERS[cut][0].pre_tokenize_str(text)]


@pytest.mark.in_full
@EACH_FAMILY
def test_every_sample_is_cut_as_the_library_cuts_it(cut):
    for text in SAMPLES:
        left = cut in LEFT_TO_THE_LIBRARY and any(character > "\uffff" for character in text)
        assert ours(cut, text) == (None if left else theirs(cut, text))


@pytest.mark.in_full
@EACH_FAMILY
@pytest.mark.parametrize("joint", JOINTS)
def test_every_character_of_the_basic_plane_is_cut_as_the_library_cuts_it(cut, joint):
    # Which share a neighbour gets is another one for each cut.
    share = (JOINTS.index(joint) + list(CUTTERS).index(cut)) % SHARES
    text = "".join(joint.format(chr(code)) for code in BASIC_PLANE[share::SHARES])
    assert ours(cut, text) == theirs(cut, text)


@pytest.mark.in_full
@EACH_FAMILY
@pytest.mark.parametrize("joint", BEYOND_JOINTS)
def test_characters_beyond_the_basic_plane_are_cut_as_the_library_cuts_them_or_not_at_all(cut, joint):
    share = (BEYOND_JOINTS.index(joint) + list(CUTTERS).index(cut)) % BEYOND_SHARES
    codes = BEYOND[share::BEYOND_SHARES]
    cut_here = 0
    for start in range(0, len(codes), 128):
        text = "".join(joint.format(chr(code)) for code in codes[start : start + 128])
        found = ours(cut, text)
        cut_here += found is not None
        assert found is None or found == theirs(cut, text)
    assert cut_here == 0 if cut in LEFT_TO_THE_LIBRARY else cut_here > 0.9 * len(codes) / 128


@EACH_FAMILY
@given(text=texts())
def test_any_text_is_cut_as_the_library_cuts_it(cut, text):
    assert ours(cut, text) in (None, theirs(cut, text))


@EACH_FAMILY
@given(text=st.text(st.characters(max_codepoint=0x7F)))
def test_any_ascii_text_is_cut_as_the_library_cuts_it(cut, text):
    assert ours(cut, text) == theirs(cut, text)


def test_a_text_of_very_many_rare_characters_is_left_to_the_library():
    """Each of them would have to be looked up, which takes longer than encoding does."""
    text = "".join(map(chr, range(0x10000, 0x10000 + 1000)))
    assert PieceCut(GPT2.stages).pieces(text) is None


def test_an_expression_that_names_a_rare_character_cuts_no_text_with_one():
    cut = PieceCut(("[😀-😅]+|x",))
    assert list(cut.pieces("axé")) == ["a", "x", "é"]
    assert cut.pieces("a😁é") is None


def test_a_class_without_members_matches_nothing_and_compiles():
    members = Alphabet(0x80).members
    assert re.findall("[" + members(r"\p{Lo}") + "]", "".join(map(chr, range(0x80)))) == []
    assert re.findall(f"[{members(NUMERALS)}]", "a1²b") == ["1"]
    assert re.findall(f"[{Alphabet(0x10000).members(NUMERALS)}]", "a1²b") == ["1", "²"]


@each_of(
    "pattern",
    [
        *(
            r"(a)|b",
            r"(?<=a)b",
            r"(?<!a)b",
            r"^a",
            r"a$",
            r".",
            r"\w+",
            r"\bx",
            r"\1",
            r"(?i:ss)|a",
            r"(?i)a",
            r"(?>a)",
        ),
        *(
            r"a+?b",
            r"a*?b",
            r"a{1,3}?",
            r"a{1,3}+",
            r"a{,3}",
            r"[[:alpha:]]",
            r"[a&&b]",
            r"[a[b]]",
            r"\p{^L}",
            r"\P{L}",
        ),
        *(r"\p{Han}", r"[\S]", r"[\w]", r"a)", r"(?:a", r"[a", r"a*", r"a?|b", r"(?=a)", r"b*(?=a)", r"a||b", r"a**"),
    ],
)
def test_an_expression_with_anything_else_is_left_to_the_library(pattern):
    assert translated(pattern, lambda _: "x") is None
    for text in ("a", "é", "😀"):
        assert PieceCut((pattern,)).pieces(text) is None
        assert PieceCut((pattern, GPT2.pattern)).pieces(text) is None


@pytest.fixture(scope="module")
def tokenizer():
    """Letters of bytes, and a few merges."""
    merges = [("a", "b"), ("ab", "c"), ("Ġ", "a"), ("Ã", "©")]
    tokens = [*ALPHABET, *(left + right for left, right in merges)]
    made = Tokenizer(BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    made.pre_tokenizer = to_tokenizers(GPT2)
    return made


@each_of(
    "text",
    [
        *("", "abc", "abcd é\u0301 abc", "😀 abc", "a" * (LONGEST_PIECE + 1), "\U0010ffff"),
        *("abc é " * (AT_ONCE // 6 + 1), "abc " * (AT_ONCE // 4)),
    ],
)
def test_short_long_and_rare_text_gets_the_ids_of_the_library(tokenizer, text):
    known = KnownPieces(tokenizer, GPT2.stages, ())
    for _ in range(2):
        assert known.encode(text) == tokenizer.encode(text).ids


def test_a_cut_that_is_not_known_gets_the_ids_of_the_library(tokenizer):
    assert KnownPieces(tokenizer, (r"(.)",), ()).encode("abc é") == tokenizer.encode("abc é").ids


def test_a_lone_surrogate_is_refused(tokenizer):
    for text in ("a\ud800", "\ud800" * AT_ONCE + "a"):
        with pytest.raises((TypeError, UnicodeEncodeError)):
            KnownPieces(tokenizer, GPT2.stages, ()).encode(text)


def test_pieces_that_are_kept_are_bounded_in_number_and_length(tokenizer):
    ids = PieceIds(tokenizer)
    for number in range(MOST + 2):
        assert ids[str(number)] == tuple(tokenizer.encode(str(number)).ids)
    assert 0 < len(ids) <= MOST
    long = "z" * (LONGEST_PIECE + 1)
    assert ids[long] == tuple(tokenizer.encode(long).ids)
    assert long not in ids
    assert ids[long[1:]] == tuple(tokenizer.encode(long[1:]).ids)
    assert long[1:] in ids
