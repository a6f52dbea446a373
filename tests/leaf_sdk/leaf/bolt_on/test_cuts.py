"""Where cuts say that text may be parted, it has the same pieces and the same ids apart as it has whole."""

import random
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from leaf_sdk.leaf.bolt_on.cuts import Cuts, cuts_by, cuts_of
from leaf_sdk.leaf.bolt_on.patterns import UNIVERSE, PatternUnknown, read_pattern
from leaf_sdk.testing import texts, tiny_map
from leaf_sdk.vocab.pre_tokenizers import GPT2, SMOLLM, PreTokenizer, to_tokenizers
from tests.cases import each_of

_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _REST
_QWEN2 = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _REST
_O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]


def _splits(*patterns):
    stages = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence([*stages, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


FAMILIES = {
    "gpt2": to_tokenizers(GPT2),
    "smollm": to_tokenizers(SMOLLM),
    "llama3": to_tokenizers(PreTokenizer(_LLAMA3)),
    "qwen2": to_tokenizers(PreTokenizer(_QWEN2)),
    "o200k": _splits(_O200K),
    "cl100k": _splits(_CL100K),
    "deepseek": _splits(*_DEEPSEEK),
    "digits": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
}
EACH_FAMILY = pytest.mark.parametrize("family", FAMILIES)
_AROUND = [
    "",
    "a",
    "'",
    "1",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "é",
    "\u0301",
    "日",
    "😀",
    ".",
    "'s",
    "l",
    "\u00a0",
    "\x00",
    "/",
]


def _pieces(family, text):
    return [piece for piece, _ in FAMILIES[family].pre_tokenize_str(text)]


def _allowed(cuts, before, after):
    return cuts.allows(f"{before}{after}x", 1)


@EACH_FAMILY
def test_every_allowed_pair_parts_the_pieces_in_any_surroundings(family):
    cuts, chance = cuts_by(FAMILIES[family]), random.Random(7)
    pairs = [(a, b) for a in sorted(UNIVERSE) for b in sorted(UNIVERSE) if _allowed(cuts, a, b)]
    assert pairs
    for before, after in pairs:
        left = "".join(chance.choices(_AROUND, k=3)) + before
        right = after + "".join(chance.choices(_AROUND, k=3))
        assert _pieces(family, left) + _pieces(family, right) == _pieces(family, left + right), (left, right)


@EACH_FAMILY
@given(left=texts(), right=texts(), before=st.sampled_from(sorted(UNIVERSE)), after=st.sampled_from(sorted(UNIVERSE)))
def test_text_of_any_kind_around_an_allowed_pair_does_not_move_the_cut(family, left, right, before, after):
    if _allowed(cuts_by(FAMILIES[family]), before, after):
        apart = _pieces(family, left + before) + _pieces(family, after + right)
        assert apart == _pieces(family, left + before + after + right)


@EACH_FAMILY
def test_a_word_and_the_blank_behind_it_are_parted(family):
    cuts = cuts_by(FAMILIES[family])
    assert cuts.places("The time") == [3]
    assert not cuts.allows("a  b", 2)
    assert not cuts.allows(" b", 1)


@EACH_FAMILY
def test_two_letters_are_never_parted_and_a_blank_stays_with_its_word(family):
    cuts = cuts_by(FAMILIES[family])
    assert cuts.places("word") == []
    assert not any(cuts.allows(f" {letter}x", 1) for letter in "azAZ")


def test_the_cut_before_a_contraction_is_the_patterns_own():
    assert cuts_by(FAMILIES["gpt2"]).places("it's") == [2]
    assert cuts_by(FAMILIES["o200k"]).places("it's") == []


def test_digits_are_parted_where_the_map_parts_them():
    assert cuts_by(FAMILIES["smollm"]).places("a123") == [1, 2, 3]
    assert cuts_by(FAMILIES["llama3"]).places("a123") == [1]


def test_characters_beyond_ascii_are_never_cut_at():
    cuts = cuts_by(FAMILIES["gpt2"])
    assert not cuts.allows("é x", 1)
    assert not cuts.allows("x\u00a0y", 1)


def test_behind_nfc_the_character_after_a_cut_must_not_take_an_accent():
    plain, composed = cuts_by(FAMILIES["gpt2"]), cuts_by(FAMILIES["gpt2"], normalizes=True)
    assert plain.allows("a=", 1)
    assert not composed.allows("a=", 1)  # a slot behind it may begin with U+0338, which makes it another character
    assert composed.allows("a=b", 1)
    assert composed.allows("a ", 1)


def test_no_ascii_character_joins_the_one_before_it_under_nfc():
    starters = [chr(code) for code in range(0x20, 0x30000) if unicodedata.normalize("NFC", chr(code)) == chr(code)]
    for after in (" ", "\n", "=", "e", "1"):
        assert all(unicodedata.normalize("NFC", each + after) == each + after for each in starters[::7])


@each_of(
    "pattern",
    [
        r"\ba+",
        r"(?<=a)b",
        r"a+$",
        r"(a)\1",
        r"[\p{L}&&[^a]]+",
        r"[[:alpha:]]+",
        r"a*",
        r"\p{Latin}+",
        r"(?!a)b",
        r"a(?!b|c)d|(?!x)",
        r"(?i:ß)",
        r"a)",
        r"(a",
        r"[a",
        "a" * 5000,
    ],
)
def test_a_pattern_that_is_not_covered_is_refused_whole(pattern):
    with pytest.raises(PatternUnknown):
        read_pattern(pattern)


@pytest.mark.parametrize(
    "stages",
    [
        pre_tokenizers.ByteLevel(add_prefix_space=True),
        pre_tokenizers.Metaspace(),
        pre_tokenizers.Sequence(
            [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        ),
        pre_tokenizers.Sequence([pre_tokenizers.BertPreTokenizer(), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    ],
)
def test_a_stage_that_is_not_covered_is_refused(stages):
    with pytest.raises(PatternUnknown):
        cuts_by(stages)


def test_an_added_token_that_text_may_spell_is_not_cut_through():
    cuts = Cuts(cuts_by(FAMILIES["gpt2"]).stages, added=("a b",))
    assert cuts.places("a b c") == [3]


def test_without_stages_nothing_may_be_cut():
    assert Cuts(()).places("a b c") == []


@given(texts(), texts(), st.sampled_from(["a b", "x (y", 'k": "v', "1 2", "end. Next", "a\nb"]))
def test_the_ids_of_the_tiny_map_are_parted_as_its_pieces_are(left, right, literal):
    token_map = tiny_map()
    for at in cuts_of(token_map).places(literal):
        apart = token_map.encode(left + literal[:at]) + token_map.encode(literal[at:] + right)
        assert apart == token_map.encode(left + literal + right)
