"""A pre-tokenizer program cuts like the expression that it stands for, and what is not known is refused."""

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex
from tokenizers.pre_tokenizers import Sequence, Split

from leaf_sdk.errors import MapUnsupported
from leaf_sdk.testing import texts
from leaf_sdk.testing.samples import samples
from leaf_sdk.vocab.gguf_names import DEEPSEEK3
from leaf_sdk.vocab.pre_tokenizers import GPT2, SMOLLM, from_map, to_map
from leaf_sdk.vocab.programs import CONTRACTIONS, patterns_of, program_of
from leaf_sdk.vocab.tiktoken_file import CUTS
from tests.cases import each_of

TAIL = [{"op": "newline_block"}, {"op": "trailing_ws"}, {"op": "ws_run"}]
PUNCT = {"op": "punct_run", "lead_space": True, "trailing_newlines": True}
# The specification's worked examples, with the numbers that its own compiler writes.
QWEN2 = [
    {"op": "literals_ci", "patterns": list(CONTRACTIONS)},
    {"op": "letters", "lead_other": True},
    {"op": "numbers", "max_run": 1},
    PUNCT,
    *TAIL,
]
LLAMA3 = [*QWEN2[:2], {"op": "numbers", "max_run": 3}, *QWEN2[3:]]
CASED = {"lead_other": True, "trailing_ci": list(CONTRACTIONS)}
O200K = [
    {"op": "letters_cased", "kind": "title", **CASED},
    {"op": "letters_cased", "kind": "upper", **CASED},
    {"op": "numbers", "max_run": 3},
    {"op": "punct_run", "lead_space": True, "trailing_chars": "\r\n/"},
    *TAIL,
]


def pieces(patterns: tuple[str, ...], text: str) -> list[str]:
    cut = Sequence([Split(Regex(pattern), "isolated") for pattern in patterns])
    return [piece for piece, _ in cut.pre_tokenize_str(text)]


@pytest.mark.parametrize(("ops", "cut"), [(QWEN2, "qwen"), (LLAMA3, "cl100k"), (O200K, "o200k")])
def test_a_program_of_version_1_cuts_like_its_expression(ops, cut):
    patterns = patterns_of({"version": 1, "ops": ops})
    for text in samples(1500):
        if "\u017f" not in text:  # a long s is an s to `(?i:'s)`, and to no program
            assert pieces(patterns, text) == pieces((CUTS[cut].pattern,), text)


@given(texts())
def test_a_program_of_version_1_cuts_what_it_does_not_match_into_characters(text):
    patterns = patterns_of({"version": 1, "ops": [{"op": "letters"}]})
    cut = pieces(patterns, text)
    assert "".join(cut) == text
    assert all(len(piece) == 1 or piece.isalpha() or not piece.isascii() for piece in cut)


def test_a_program_of_version_2_leaves_what_it_does_not_match_whole():
    patterns = patterns_of({"version": 2, "stages": [{"stage": "alternation", "ops": [{"op": "letters"}]}]})
    assert pieces(patterns, "ab!?;12cd") == ["ab", "!?;12", "cd"]


@pytest.mark.parametrize("known", [SMOLLM, DEEPSEEK3])
def test_a_cut_in_stages_becomes_a_program_and_comes_back(known):
    fields = to_map(known)
    assert fields["pre_tokenizer_program"]["version"] == 2
    assert from_map(fields) == known
    assert program_of(known.stages) == fields["pre_tokenizer_program"]


_MIXED = st.lists(
    st.sampled_from(
        [*"a1'.! \t\n\r\x00/$é日本ー・゛½Ⅷ٣Ａ😀", "'s", "12", "  ", "\u0301", "\u3040", "\u3099", "\u00a0", "\u3000"]
    ),
    max_size=14,
).map("".join)


@pytest.mark.parametrize("known", [SMOLLM, DEEPSEEK3])
@given(text=_MIXED | texts())
def test_the_single_expression_beside_a_program_makes_the_same_cuts(known, text):
    assert pieces((to_map(known)["pre_tokenizer_pattern"],), text) == pieces(known.stages, text)


@pytest.mark.parametrize("known", [SMOLLM, DEEPSEEK3])
@given(text=_MIXED)
def test_the_single_expression_makes_the_same_cuts_in_the_engine_of_codecai(known, text):
    assert regex.findall(to_map(known)["pre_tokenizer_pattern"], text) == pieces(known.stages, text)


def test_a_cut_that_no_program_says_stands_in_a_key_of_ours():
    assert program_of(("x", "y")) is None


@pytest.mark.parametrize(
    ("stage", "text", "cut"),
    [
        ({"stage": "digits_isolate", "mode": "individual"}, "a12b", ["a", "1", "2", "b"]),
        ({"stage": "digits_isolate", "mode": "grouped"}, "a12b", ["a", "12", "b"]),
        ({"stage": "digits_isolate", "mode": "grouped", "max_run": 2}, "12345", ["12", "34", "5"]),
        ({"stage": "digit_triples_isolate"}, "12345", ["123", "45"]),
        ({"stage": "punctuation_contiguous"}, "a.,b$", ["a", ".,", "b", "$"]),
        ({"stage": "cjk_isolate"}, "a東京カナb", ["a", "東京カナ", "b"]),
    ],
)
def test_each_stage_cuts_as_it_says(stage, text, cut):
    assert pieces(patterns_of({"version": 2, "stages": [stage]}), text) == cut


@each_of(
    ("op", "text", "cut"),
    [
        ({"op": "literals", "patterns": ["a", "abc"]}, "abca", ["abc", "a"]),
        ({"op": "literals_ci", "patterns": ["'s"]}, "'S's", ["'S", "'s"]),
        ({"op": "letters", "lead_space": True}, "a b", ["a", " b"]),
        ({"op": "letters", "body": "L_M"}, "e\u0301a", ["e\u0301a"]),
        ({"op": "numbers", "lead_space": True}, "1 2", ["1", " 2"]),
        ({"op": "punct_run", "charset": "p_s"}, "a!?", ["a", "!?"]),
        ({"op": "punct_ascii_letters"}, "!ab", ["!ab"]),
        ({"op": "newline_block"}, " \n\nx", [" \n\n", "x"]),
        ({"op": "trailing_ws"}, "a  ", ["a", "  "]),
        ({"op": "ws_run"}, "a \tb", ["a", " \t", "b"]),
    ],
)
def test_each_operation_matches_what_it_says(op, text, cut):
    assert pieces(patterns_of({"version": 1, "ops": [op]}), text) == cut


@each_of(
    "program",
    [
        None,
        7,
        {},
        {"version": 1},
        {"version": 1, "ops": []},
        {"version": 1, "ops": [{"op": "letters"}], "stages": []},
        {"version": 3, "ops": [{"op": "letters"}]},
        {"version": 1, "ops": ["letters"]},
        {"version": 1, "ops": [{"op": "magic"}]},
        {"version": 1, "ops": [{"op": ["letters"]}]},
        {"version": 1, "ops": [{"op": "letters", "zzz": True}]},
        {"version": 1, "ops": [{"op": "letters", "body": "X"}]},
        {"version": 1, "ops": [{"op": "literals"}]},
        {"version": 1, "ops": [{"op": "literals", "patterns": 7}]},
        {"version": 1, "ops": [{"op": "numbers", "max_run": 0}]},
        {"version": 1, "ops": [{"op": "letters_cased", "kind": "lower"}]},
        {"version": 1, "ops": [{"op": "metaspace_split", "prefix_first": True}]},
        {"version": 2, "stages": [{"stage": "magic"}]},
        {"version": 2, "stages": [{"stage": "alternation", "ops": []}]},
        {"version": 2, "stages": [{"stage": "alternation", "ops": [{"op": "letters"}], "zzz": 1}]},
        {"version": 2, "stages": [{"stage": "digits_isolate", "mode": "pairs"}]},
        {"version": 2, "stages": [{"stage": "cjk_isolate", "zzz": 1}]},
    ],
)
def test_what_is_not_known_is_refused(program):
    with pytest.raises(MapUnsupported, match="pre_tokenizer_program"):
        patterns_of(program)


def test_a_program_alone_is_enough_and_one_of_version_2_wins():
    only = {"pre_tokenizer_program": {"version": 1, "ops": QWEN2}}
    assert from_map(only).pattern == patterns_of(only["pre_tokenizer_program"])[0]
    both = to_map(SMOLLM) | {"pre_tokenizer_pattern": "x"}
    assert from_map(both) == SMOLLM
    assert from_map(only | {"pre_tokenizer_pattern": GPT2.pattern}) == GPT2
