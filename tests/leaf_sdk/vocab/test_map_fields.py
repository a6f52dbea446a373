"""Every field of a map is read and written; maps that only decode do that, and are refused where ids are asked for."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk import Detokenizer
from leaf_sdk.errors import MapUnsupported, NotAMap
from leaf_sdk.testing import texts, tiny_map, tiny_map_bytes
from leaf_sdk.vocab import TokenMap, compile_map, load_compiled, load_map, map_digest
from leaf_sdk.vocab.agreement import compare_maps
from leaf_sdk.vocab.fields import json_object
from leaf_sdk.vocab.tokenizer import Metaspace, Tokenizer
from leaf_sdk.vocab.write import convert_fields, write_fields, write_tokenizer
from tests.cases import each_of

FIELDS = json.loads(tiny_map_bytes())
DICTIONARY = {"format": "msgpack", "url": "https://example.org/d", "hash": "sha256:" + "A" * 64, "size_bytes": 7}
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
WORDS = ["▁", "h", "e", "l", "o", "▁h", "el", "lo", "▁hel", "▁hello", "\n"]
UNIGRAM = Tokenizer(
    vocab={token: i for i, token in enumerate(["<unk>", *BYTES, *WORDS])},
    special_tokens={"<unk>": 0},
    encoder="metaspace",
    algorithm="unigram",
    metaspace=Metaspace("always", split=True),
    scores=[0.0] * 257 + [-1.0 - at / 8 for at in range(len(WORDS))],
    byte_fallback=(1, 256),
)
BPE = Tokenizer(
    vocab=UNIGRAM.vocab,
    special_tokens=UNIGRAM.special_tokens,
    encoder="metaspace",
    metaspace=Metaspace("missing", first_only=True),
    merges=["▁ h", "e l", "l o", "▁h el", "▁hel lo"],
    byte_fallback=(1, 256),
    added_tokens=["\n"],
)


def load(*, decode_only: bool = False, **changed: object) -> TokenMap:
    fields = {key: value for key, value in {**FIELDS, **changed}.items() if value is not ...}
    return load_map(json.dumps(fields).encode(), decode_only=decode_only)


def metaspace(**changed: object) -> TokenMap:
    fields = json.loads(write_tokenizer("x/y", BPE)) | changed
    return load_map(json.dumps({key: value for key, value in fields.items() if value is not ...}).encode())


@pytest.fixture(scope="module")
def golden_metaspace(request) -> TokenMap:
    path = request.path.parents[1] / "vectors" / "tiny_metaspace_map.json"
    return load_map(path.read_bytes(), decode_only=True)


def test_the_golden_metaspace_map_decodes_as_the_reference_does(golden_metaspace, vectors):
    golden = vectors("metaspace")
    assert golden_metaspace.map_id == golden["sha256"]
    for case in golden["encodings"]:
        assert golden_metaspace.decode(case["ids"]) == case["decoded"]


def test_a_character_in_bytes_waits_for_its_last_one(golden_metaspace):
    detokenizer = Detokenizer(golden_metaspace)
    assert [detokenizer.feed([token]) for token in (259, 198, 172)] == [" ", "", "é"]


def test_a_metaspace_map_that_does_not_say_what_becomes_of_spaces_only_decodes(golden_metaspace):
    """The published rule loses newlines and runs of spaces; ids made by it would not be the model's."""
    assert not golden_metaspace.can_encode
    with pytest.raises(MapUnsupported, match="map build"):
        golden_metaspace.encode("hello")


def test_a_map_of_plain_text_only_decodes(vectors):
    """Longest match writes id 0 for whatever it does not know, which may be a real token."""
    data = json.dumps(vectors("metaspace")["vocab_only"]["map"]).encode()
    token_map = load_map(data, decode_only=True)
    assert token_map.decode([0, 1, 2]) == "hello world!"
    with pytest.raises(MapUnsupported, match="without an encoder"):
        load_map(data)


def test_a_version_1_map_decodes(vectors):
    token_map = load_map(json.dumps(vectors("v1_map")["map"]).encode(), decode_only=True)
    assert token_map.decode([0, 1, 2]) == "ab c"
    assert (token_map.version, token_map.algorithm, token_map.encoder) == ("1", None, None)
    with pytest.raises(MapUnsupported):
        token_map.encode("a")


@pytest.mark.parametrize(
    ("tokens", "error"),
    [
        ([], NotAMap),
        ({"a": "b", "1": "c"}, NotAMap),
        ({"1": 7, "2": "c"}, NotAMap),
        ({"-1": "a", "2": "c"}, NotAMap),
        ({"99999999999": "a", "2": "c"}, NotAMap),
        ({"1": "a", "2": "a"}, MapUnsupported),
    ],
)
def test_a_version_1_table_that_is_wrong_is_refused(tokens, error):
    with pytest.raises(error, match="tokens"):
        load_map(json.dumps({"id": "x", "version": "1", "vocab_size": 1, "tokens": tokens}).encode(), decode_only=True)


def test_dictionaries_and_the_date_are_read():
    token_map = load(zstd_dictionaries=[DICTIONARY], published_at="2026-11-21T00:00:00Z")
    (dictionary,) = token_map.zstd_dictionaries
    assert (dictionary.format, dictionary.url, dictionary.size_bytes) == ("msgpack", "https://example.org/d", 7)
    assert dictionary.hash == "sha256:" + "a" * 64
    assert token_map.published_at == "2026-11-21T00:00:00Z"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        [7],
        [{**DICTIONARY, "format": "json"}],
        [{**DICTIONARY, "url": ""}],
        [{**DICTIONARY, "hash": "md5:1"}],
        [{**DICTIONARY, "size_bytes": 0}],
        [{**DICTIONARY, "size_bytes": True}],
    ],
)
def test_a_dictionary_that_is_wrong_is_named(wrong):
    with pytest.raises(NotAMap, match="zstd_dictionaries"):
        load(zstd_dictionaries=wrong)


@pytest.mark.parametrize("mark", ["_synthetic", "synthetic", "_placeholder", "placeholder"])
def test_a_placeholder_is_refused_by_its_name_and_its_mark(mark):
    with pytest.raises(MapUnsupported, match=rf"codec-test/tiny.*{mark}"):
        load(decode_only=True, **{mark: True})


def test_a_map_of_one_token_is_a_placeholder():
    with pytest.raises(MapUnsupported, match="placeholder"):
        load(vocab={"<claude>": 0}, merges=[], special_tokens=..., tool_calling=..., decode_only=True)


@pytest.mark.parametrize("tokenizer", [UNIGRAM, BPE])
def test_what_is_written_is_read_back(tokenizer):
    token_map = load_map(write_tokenizer("x/y", tokenizer))
    for name in ("encoder", "algorithm", "metaspace", "byte_fallback", "normalizer", "ignore_merges"):
        assert getattr(token_map, name) == getattr(tokenizer, name)
    assert dict(token_map.vocab) == tokenizer.vocab
    assert list(token_map.scores) == list(tokenizer.scores)
    assert [" ".join(pair) for pair in token_map.merges] == list(tokenizer.merges)
    assert list(token_map.added_tokens) == list(tokenizer.added_tokens)
    assert "hello" in token_map.decode(token_map.encode("hello"))


@pytest.mark.parametrize("data", [tiny_map_bytes(), write_tokenizer("x/y", UNIGRAM), write_tokenizer("x/y", BPE)])
def test_converting_a_canonical_map_changes_nothing(data):
    assert write_fields(convert_fields(json_object(data, "a map"), {})) == data


def test_converting_puts_tokens_in_the_order_of_their_ids_and_their_scores_with_them():
    fields = json.loads(write_tokenizer("x/y", UNIGRAM))
    shuffled = fields | {
        "vocab": dict(reversed(fields["vocab"].items())),
        "x_scores": list(reversed(fields["x_scores"])),
    }
    assert convert_fields(shuffled, {}) == fields


@each_of(
    ("changed", "error", "word"),
    [
        ({"x_metaspace": 7}, MapUnsupported, "x_metaspace"),
        ({"x_metaspace": {"prefix": "sometimes"}}, MapUnsupported, "x_metaspace"),
        ({"x_metaspace": {"prefix": "never", "zzz": True}}, MapUnsupported, "x_metaspace"),
        ({"x_metaspace": {"prefix": "never", "split": 1}}, MapUnsupported, "x_metaspace"),
        ({"x_metaspace": ...}, MapUnsupported, "x_metaspace"),
        ({"x_algorithm": "magic"}, MapUnsupported, "x_algorithm"),
        ({"x_algorithm": "unigram"}, NotAMap, "x_scores"),
        ({"x_algorithm": "unigram", "x_scores": [1]}, NotAMap, "x_scores"),
        ({"x_algorithm": "unigram", "x_scores": ["1"] * len(BPE.vocab)}, NotAMap, "x_scores"),
        ({"byte_fallback_end": 200}, NotAMap, "byte_fallback"),
        ({"byte_fallback_start": 2, "byte_fallback_end": 257}, NotAMap, "<0x"),
        ({"byte_fallback_start": "1", "byte_fallback_end": "256"}, NotAMap, "byte_fallback"),
        ({"x_added_tokens": ["zzz"]}, NotAMap, "x_added_tokens"),
        ({"x_added_tokens": [7]}, NotAMap, "x_added_tokens"),
        ({"x_added_tokens": ["<unk>"]}, NotAMap, "x_added_tokens"),
        ({"x_added_tokens": ["hel"], "vocab": {**BPE.vocab, "hel": 900}}, MapUnsupported, "blanks"),
        ({"published_at": 7}, NotAMap, "published_at"),
    ],
)
def test_an_additive_field_that_is_wrong_is_named(changed, error, word):
    with pytest.raises(error, match=word):
        metaspace(**changed)


def test_a_byte_level_map_has_no_scores():
    with pytest.raises(MapUnsupported, match="x_algorithm"):
        load(x_algorithm="unigram", x_scores=[0.0] * len(FIELDS["vocab"]))


@given(texts())
def test_spaces_are_what_the_map_says(text):
    token_map = metaspace()
    ids = token_map.encode(text)
    prefix = "" if not text or text.startswith((" ", "▁")) else " "
    assert token_map.decode_bytes(ids) == (prefix + text.replace("▁", " ")).encode()
    assert not token_map.special_ids & set(ids)


def test_a_prefix_goes_before_the_text_alone_or_before_each_part():
    marker = {"special_tokens": {"<unk>": 0, "[X]": 900}}
    each, first = metaspace(x_metaspace={"prefix": "always"}, **marker), metaspace(**marker)
    assert each.decode(each.encode("hello[X]hello", specials=True)) == " hello[X] hello"
    assert first.decode(first.encode("hello[X]hello", specials=True)) == " hello[X]hello"
    assert first.decode(first.encode("[X]hello", specials=True)) == "[X]hello"


def test_collapsed_spaces_are_one_and_none_at_the_ends():
    token_map = metaspace(x_metaspace={"prefix": "always", "collapse": True}, x_added_tokens=...)
    assert token_map.decode(token_map.encode("  hello   hello  ")) == " hello hello"
    assert token_map.encode("   ") == []


@pytest.mark.parametrize("data", [tiny_map_bytes(), write_tokenizer("x/y", UNIGRAM), write_tokenizer("x/y", BPE)])
def test_a_compiled_map_is_the_map(data):
    token_map = load_map(data)
    form = compile_map(token_map)
    assert form is not None
    compiled = load_compiled(form, map_digest(data), lambda: load_map(data))
    assert compiled.is_same_tokenizer(token_map)
    assert compiled.special_ids == token_map.special_ids
    assert (compiled.id, compiled.version, compiled.tool_calling) == (
        token_map.id,
        token_map.version,
        token_map.tool_calling,
    )
    assert not compare_maps(compiled, token_map)


@given(st.lists(st.integers(-5, 400)))
def test_a_compiled_map_decodes_any_ids_as_the_map_does(ids):
    form = compile_map(tiny_map())
    assert form is not None
    compiled = load_compiled(form, tiny_map().map_id, tiny_map)
    assert compiled.decode_bytes(ids) == tiny_map().decode_bytes(ids)
    assert [compiled.has_id(i) for i in ids] == [tiny_map().has_id(i) for i in ids]
    assert len(compiled) == len(tiny_map())


def test_ids_with_wide_gaps_decode_and_are_not_compiled():
    token_map = load(vocab={**FIELDS["vocab"], "far": 4_000_000_000})
    assert token_map.decode([104, 4_000_000_000, 105, 5_000_000]) == "hfari\ufffd"
    assert compile_map(token_map) is None


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"x_ignore_merges": True}, "ignore_merges"),
        ({"x_normalizer": "NFC"}, "normalizer"),
        ({"merges": FIELDS["merges"][1:]}, "merges"),
        ({"pre_tokenizer_pattern": r"\s+"}, "pre_tokenizer"),
    ],
)
def test_maps_that_encode_otherwise_are_not_one_tokenizer(changed, field):
    other = load(**changed)
    assert not tiny_map().is_same_tokenizer(other)
    assert compare_maps(tiny_map(), other).fields == [field]
    assert tiny_map().is_same_tokenizer(load(id="another/name"))


def test_maps_whose_spaces_differ_are_not_one_tokenizer():
    assert not metaspace().is_same_tokenizer(metaspace(x_metaspace={"prefix": "never"}))
    assert not metaspace().is_same_tokenizer(metaspace(x_added_tokens=...))
