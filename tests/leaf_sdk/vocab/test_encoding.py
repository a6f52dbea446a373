"""Ids are those of Hugging Face's own pieces and of the engine, for text that tokenizers are known to differ on.

The reference is put together here from the GGUF file's vocabulary and merges with `tokenizers`' own parts, by the
structure that each model's tokenizer.json has; nothing of the SDK's table is used for it.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, normalizers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence, Split

from leaf_sdk.testing import texts
from leaf_sdk.vocab import build_map, load_map, read_gguf_tokenizer
from leaf_sdk.vocab.gguf_names import LLAMA3, QWEN2
from leaf_sdk.vocab.pre_tokenizers import GPT2, SMOLLM, to_tokenizers
from tests.cases import each_of

CORPUS = [
    "",
    " ",
    "hello world",
    "a  1",
    "a   b    c\t\td",
    " leading",
    "trailing   ",
    "  \n  \n\n  x",
    "line\r\nline\r\n\r\nend\r",
    "don't I'LL we'Ve it'S they'd 'tis",
    "1234567890 3.14159 1,000,000 ½ ² Ⅻ ٣٤ １２",
    "x1y22z333",
    "日本語のテキスト、中文文本。한국어 텍스트!",
    "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇨🇭",
    "e\u0301 é n\u0303 ñ ạ\u0302 \u1e9b\u0323",
    "\x00\x01\x02\x07\x08\x0b\x0c\x1b[31m\x7f",
    "\x04\x06\x13 lost bytes \x16\x1d",
    "\u00a0\u2003\u200b\u200d\ufeff\u2028\u2029\u3000\u0085",
    "\U000e0041\U00040000\U000f0000\U0010ffff",
    "def f(x):\n    return {'a': [1, 2], \"b\": x**2}  # ok\n\n\nclass A:\n\tpass\n",
    '{"timezone": "Europe/Paris", "time": "14:37", "n": -1.5e-7}',
    "<|im_start|>system\nobey<|im_end|><repo_name><|endoftext|>",
    "https://example.org/a?b=c&d=%20#e",
    "Ünïcödé ẞ ŐŰ Ŀ ŀ ĠĊ Ģ ħ",
    "!!!???...---___***```~~~",
    "אבג مرحبا हिन्दी ไทย ქართული",
    "a" * 300,
    "supercalifragilistic" * 40,
    " " * 70 + "x",
    "\n" * 70 + "x",
    "=" * 200,
]


def _split(pattern: str) -> Sequence:
    return Sequence([Split(Regex(pattern), "isolated"), ByteLevel(add_prefix_space=False, use_regex=False)])


# What each model's tokenizer.json says; the patterns are Meta's and Qwen's own.
STRUCTURES = {
    "smollm": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]),
    "gpt-2": ByteLevel(add_prefix_space=False, use_regex=True),
    "llama-3": _split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    "qwen2": _split(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
}
GGUF_TABLE = {"smollm": SMOLLM, "gpt-2": GPT2, "llama-3": LLAMA3, "qwen2": QWEN2}
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@pytest.fixture(scope="session")
def head(smollm_path: Path):
    return read_gguf_tokenizer(smollm_path.read_bytes()[: 4 * 2**20])


@pytest.fixture(scope="session", params=sorted(STRUCTURES))
def pair(request, head):
    """Hugging Face's tokenizer over the model's vocabulary, and the map that we build from what it saves."""
    kinds = dict(zip(head.tokens, head.token_types, strict=True))
    ordinary = {token: i for i, token in enumerate(head.tokens) if kinds[token] == 1}
    merges = [tuple(line.split(" ")) for line in head.merges]
    reference = Tokenizer(BPE(vocab=ordinary, merges=merges, ignore_merges=request.param == "llama-3"))
    reference.pre_tokenizer = STRUCTURES[request.param]
    if request.param == "qwen2":
        reference.normalizer = normalizers.NFC()
    return load_map(build_map(reference.to_str().encode())), reference


@pytest.mark.parametrize("name", sorted(STRUCTURES))
@each_of("text", [*CORPUS, "'s 'S 'T 'rE 'LL 'd 'x"])
def test_the_gguf_table_cuts_text_as_the_tokenizer_json_of_that_name_does(name, text):
    ours = to_tokenizers(GGUF_TABLE[name])
    assert ours.pre_tokenize_str(text) == STRUCTURES[name].pre_tokenize_str(text)


@pytest.mark.parametrize("pre_tokenizer", [LLAMA3, QWEN2])
def test_a_long_s_is_no_contraction_for_the_engine(pre_tokenizer):
    pieces = to_tokenizers(pre_tokenizer).pre_tokenize_str("it'\u017f")
    assert [span for _, span in pieces] == [(0, 2), (2, 4)]
    assert [span for _, span in to_tokenizers(pre_tokenizer).pre_tokenize_str("'\u017fa")] == [(0, 3)]


@each_of("text", CORPUS)
def test_the_corpus_gets_the_ids_that_hugging_face_gives(pair, text):
    ours, reference = pair
    assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids


@SLOW
@given(text=texts())
def test_any_text_gets_the_ids_that_hugging_face_gives(pair, text):
    ours, reference = pair
    assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids


def test_the_known_disagreement_of_published_maps_is_settled_as_hugging_face_has_it(smollm):
    assert len(smollm.encode("a  1")) == 3


@pytest.mark.parametrize("text", CORPUS, ids=lambda text: ascii(text)[:30])
def test_the_corpus_gets_the_ids_that_the_engine_gives(smollm, engine_tokenize, text):
    assert smollm.encode(text) == engine_tokenize(text)


@settings(parent=SLOW, max_examples=60)
@given(text=texts())
def test_any_text_gets_the_ids_that_the_engine_gives(smollm, engine_tokenize, text):
    assert smollm.encode(text) == engine_tokenize(text)


@SLOW
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_text_that_the_vocabulary_can_spell_comes_back_exactly(smollm, text):
    lost = {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, *range(0xF1, 0x100)} - {0xF3, 0xF4}
    kept = "".join(character for character in text if not lost & set(character.encode()))
    assert smollm.decode(smollm.encode(kept)) == kept
