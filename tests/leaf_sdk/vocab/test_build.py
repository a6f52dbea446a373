"""A map built from a model's own file is canonical, describes that file exactly, and refuses what it can't describe."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.errors import CodecError, MapTruncated, MapUnsupported, NotAMap
from leaf_sdk.fetch import map_bytes
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.testing.gguf import gguf_head, gguf_model
from leaf_sdk.vocab import TokenMap, build_map, load_map
from leaf_sdk.vocab.byte_level import ALPHABET
from leaf_sdk.vocab.gguf_names import LLAMA3, QWEN2
from leaf_sdk.vocab.pre_tokenizers import GPT2, SMOLLM, PreTokenizer
from tests.cases import each_of

TINY = json.loads(tiny_map_bytes())
TOKENS = [*ALPHABET, "he", "ll"]
GGUF = {
    "general.organization": "Some Lab",
    "general.basename": "Tiny Model",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*TOKENS, "<|end|>", "<tool_call>", "</tool_call>", "[PAD1]"],
    "tokenizer.ggml.token_type": [1] * len(TOKENS) + [3, 4, 4, 5],
    "tokenizer.ggml.merges": ["h e", "l l"],
    "tokenizer.chat_template": "{{ '<tool_call>' }}",
}
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
AFTER_SPLIT = {**BYTE_LEVEL, "use_regex": False}
DIGITS = {"type": "Digits", "individual_digits": True}


def split(regex: str, **changed: object) -> dict[str, object]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} | changed


def sequence(*stages: dict[str, object]) -> dict[str, object]:
    return {"type": "Sequence", "pretokenizers": list(stages)}


def gguf_with_merges(merges: list[str]) -> TokenMap:
    """A map of a file in which a SentencePiece vocabulary comes with merges, as in those of Gemma 4."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = ["▁", "a", "b", "▁a", "ab", "\n", "\n\n", "b\n"]
    return load_map(
        build_map(
            gguf_model(
                {
                    "tokenizer.ggml.model": "gemma4",
                    "tokenizer.ggml.tokens": [*bytes_, *pieces, "<end>"],
                    "tokenizer.ggml.token_type": [6] * 256 + [1] * len(pieces) + [3],
                    "tokenizer.ggml.merges": merges,
                }
            )
        )
    )


def test_merges_of_a_sentencepiece_vocabulary_are_ranked_and_stay_within_a_line() -> None:
    token_map = gguf_with_merges(["▁ a", "a b", "\n \n", "b \n"])

    spelled = [[token_map.decode([each]) for each in token_map.encode(text)] for text in (" ab", "ab", "b\n\n", "ab é")]

    assert spelled[:3] == [[" a", "b"], ["ab"], ["b", "\n\n"]]
    assert token_map.encode("ab é")[-2:] == [0xC3, 0xA9]
    assert token_map.encode("<end>")[-1] != token_map.special_tokens["<end>"]


def tokenizer_json(**changed: object) -> bytes:
    document = {
        "version": "1.0",
        "added_tokens": [
            {"id": 258, "content": "<|end|>", "special": True, "normalized": False},
            {"id": 259, "content": "<plain>", "special": False, "normalized": True},
        ],
        "normalizer": None,
        "pre_tokenizer": BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "vocab": {token: token_id for token_id, token in enumerate(TOKENS)},
            "merges": ["h e", ["l", "l"]],
        },
    }
    return json.dumps(document | changed).encode()


def model(**changed: object) -> bytes:
    document = json.loads(tokenizer_json())
    document["model"] |= changed
    return json.dumps(document).encode()


def test_the_packaged_model_builds_the_same_map_every_time(smollm_path):
    head = smollm_path.read_bytes()[: 4 * 2**20]
    data = build_map(head)
    assert data == build_map(memoryview(head))
    token_map = load_map(data)
    assert token_map.id == "huggingfacetb/smollm2"
    assert len(token_map) == 49152
    assert token_map.special_ids == set(range(17))
    assert token_map.pre_tokenizer == SMOLLM
    assert token_map.tool_calling is None
    assert not token_map.ignore_merges


def test_the_bytes_are_those_of_published_maps(smollm_path):
    data = build_map(smollm_path.read_bytes()[: 4 * 2**20])
    fields = json.loads(data)
    assert data == json.dumps(fields, ensure_ascii=False, indent=2).encode()
    assert list(fields["vocab"].values()) == sorted(fields["vocab"].values())
    assert fields["vocab_size"] == len(fields["vocab"])
    assert fields["pre_tokenizer_program"]["version"] == 2
    # For readers that know no programs; `test_programs` holds that it cuts the same.
    assert fields["pre_tokenizer_pattern"].startswith("'s|'t|")


def test_a_gguf_file_gives_its_special_tokens_and_its_tool_markers():
    token_map = load_map(build_map(gguf_head(GGUF)))
    assert token_map.id == "some-lab/tiny-model"
    assert token_map.special_tokens == {"<|end|>": 258, "<tool_call>": 259, "</tool_call>": 260}
    assert token_map.tool_calling is not None
    assert token_map.tool_calling.convention == "qwen25"
    assert not token_map.has_id(261)


@pytest.mark.parametrize("inside", ["<function={{ name }}>", "{{ name }}<arg_key>"])
def test_convention_of_json_is_not_declared_where_the_chat_template_writes_tags(inside):
    head = gguf_head(GGUF | {"tokenizer.chat_template": f"<tool_call>{inside}</tool_call>"})
    assert load_map(build_map(head)).tool_calling is None


def test_markers_that_the_chat_template_never_writes_are_not_declared():
    assert load_map(build_map(gguf_head(GGUF | {"tokenizer.chat_template": "plain"}))).tool_calling is None


def test_a_user_defined_token_is_not_found_in_ordinary_text():
    token_map = load_map(build_map(gguf_head(GGUF)))
    assert 259 not in token_map.encode("<tool_call>")
    assert token_map.encode("<tool_call>", specials=True) == [259]


@pytest.mark.parametrize(
    ("name", "pre_tokenizer", "ignore_merges"),
    [
        ("gpt-2", GPT2, False),
        ("smollm", SMOLLM, False),
        ("starcoder", SMOLLM, False),
        ("llama-bpe", LLAMA3, True),
        ("qwen2", QWEN2, False),
    ],
)
def test_each_pre_tokenizer_name_of_gguf_survives_the_map(name, pre_tokenizer, ignore_merges):
    token_map = load_map(build_map(gguf_head(GGUF | {"tokenizer.ggml.pre": name})))
    assert token_map.pre_tokenizer == pre_tokenizer
    assert token_map.ignore_merges is ignore_merges
    assert token_map.exact_decode


@pytest.mark.parametrize("name", ["deepseek-llm", "afmoe", "superbpe", "GPT-2"])
def test_an_unknown_pre_tokenizer_name_is_refused_by_name(name):
    with pytest.raises(MapUnsupported) as raised:
        build_map(gguf_head(GGUF | {"tokenizer.ggml.pre": name}))
    assert repr(name) in raised.value.what


def test_a_gguf_file_that_names_no_pre_tokenizer_is_cut_as_llama_cpp_does_by_default():
    unnamed = {key: value for key, value in GGUF.items() if key != "tokenizer.ggml.pre"}

    assert build_map(gguf_head(unnamed)) == build_map(gguf_head(GGUF | {"tokenizer.ggml.pre": "default"}))


@pytest.mark.parametrize("name", ["bert", "t5", "rwkv", ""])
def test_a_kind_of_tokenizer_that_llama_cpp_runs_otherwise_is_refused_by_name(name):
    with pytest.raises(MapUnsupported, match=f"{name!r}"):
        build_map(gguf_head(GGUF | {"tokenizer.ggml.model": name}))


def test_a_token_listed_twice_is_refused():
    twice = {"tokenizer.ggml.tokens": ["a", "a"], "tokenizer.ggml.token_type": [1, 1]}
    with pytest.raises(NotAMap, match="twice"):
        build_map(gguf_head(GGUF | twice))


@each_of(
    ("structure", "expected"),
    [
        (BYTE_LEVEL, GPT2),
        (sequence(BYTE_LEVEL), GPT2),
        (sequence(DIGITS, BYTE_LEVEL), SMOLLM),
        (sequence(split(r"\p{N}{1,3}|\s+"), AFTER_SPLIT), PreTokenizer(r"\p{N}{1,3}|\s+")),
        (sequence(split("[\r\n]"), AFTER_SPLIT), PreTokenizer(r"[\r\n]")),
        (sequence(split(r"\p{N}"), AFTER_SPLIT), PreTokenizer(r"[\p{N}]")),
        (sequence(split("x"), BYTE_LEVEL), PreTokenizer(GPT2.pattern, before=("x",))),
        (sequence(DIGITS, split("x"), AFTER_SPLIT), PreTokenizer("x", before=(r"\p{N}",))),
        (sequence(DIGITS, AFTER_SPLIT), PreTokenizer(r"\p{N}")),
    ],
)
def test_each_known_structure_of_a_tokenizer_json_survives_the_map(structure, expected):
    assert load_map(build_map(tokenizer_json(pre_tokenizer=structure))).pre_tokenizer == expected


@each_of(
    "structure",
    [
        None,
        {"type": "Whitespace"},
        {"type": "Metaspace", "replacement": "▁"},
        {**BYTE_LEVEL, "add_prefix_space": True},
        {"type": "ByteLevel"},
        AFTER_SPLIT,
        sequence(),
        sequence(BYTE_LEVEL, DIGITS),
        sequence({**DIGITS, "individual_digits": False}, BYTE_LEVEL),
        sequence(split("x", behavior="Removed"), AFTER_SPLIT),
        sequence(split("x", invert=True), AFTER_SPLIT),
        sequence(split("x", behavior="Removed", invert=True), AFTER_SPLIT),
        sequence(split("x", pattern={"String": "x"}), AFTER_SPLIT),
    ],
)
def test_a_structure_that_cuts_otherwise_is_refused(structure):
    with pytest.raises(MapUnsupported, match="pre_tokenizer"):
        build_map(tokenizer_json(pre_tokenizer=structure))


def test_a_tokenizer_json_gives_every_added_token_as_special():
    token_map = load_map(build_map(tokenizer_json(), id="lab/model"))
    assert token_map.id == "lab/model"
    assert token_map.special_tokens == {"<|end|>": 258, "<plain>": 259}
    assert token_map.merges == (("h", "e"), ("l", "l"))
    assert 259 not in token_map.encode("<plain>")


def test_what_the_map_has_no_field_for_stands_in_additive_keys():
    fields = json.loads(build_map(model(ignore_merges=True)))
    assert fields["x_ignore_merges"] is True
    assert load_map(build_map(model(ignore_merges=True))).ignore_merges
    normalized = build_map(tokenizer_json(normalizer={"type": "NFC"}))
    assert json.loads(normalized)["x_normalizer"] == "NFC"
    assert not load_map(normalized).exact_decode
    assert not [key for key in json.loads(build_map(tokenizer_json())) if key.startswith("x_")]


@each_of(
    ("data", "word"),
    [
        (model(type="WordPiece"), "WordPiece"),
        (model(dropout=0.1), "dropout"),
        (model(byte_fallback=True), "pre_tokenizer"),
        (model(continuing_subword_prefix="##"), "continuing_subword_prefix"),
        (model(end_of_word_suffix="</w>"), "end_of_word_suffix"),
        (model(merges=[["a b", "c"]]), "spaces"),
        (model(vocab={"a": 0}, merges=[], unk_token="<unk>"), "unk_token"),
        (tokenizer_json(normalizer={"type": "Lowercase"}), "Lowercase"),
        (tokenizer_json(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 2}), "NFC"),
        (tokenizer_json(added_tokens=[{"id": 1, "content": "<m>", "lstrip": True}]), "lstrip"),
    ],
)
def test_a_part_that_is_not_reproduced_is_refused_by_name(data, word):
    with pytest.raises(MapUnsupported, match=word):
        build_map(data)


@each_of(
    "data",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        tiny_map_bytes(),
        model(vocab=[]),
        model(merges=["a b c"]),
        model(merges=[7]),
        tokenizer_json(added_tokens=["x"]),
        tokenizer_json(added_tokens=[{"id": "1", "content": "x"}]),
        tokenizer_json(added_tokens=[{"id": 300, "content": "\ud800"}]),
    ],
)
def test_a_file_that_is_no_tokenizer_is_refused(data):
    with pytest.raises(NotAMap):
        build_map(data)


@pytest.mark.parametrize("wrong", ["", "Upper/Case", "a//b", "/a", "a/", "../x", "a b"])
def test_an_id_that_discovery_could_not_serve_is_refused(wrong):
    with pytest.raises(NotAMap, match="map id"):
        build_map(tokenizer_json(), id=wrong)


@given(st.binary())
def test_garbage_raises_our_own_error(data):
    with pytest.raises(CodecError):
        build_map(data)


def test_the_tiny_map_of_the_test_kit_is_stable():
    assert tiny_map().map_id == load_map(tiny_map_bytes()).map_id
    assert TINY["vocab_size"] == len(TINY["vocab"])


def test_gguf_file_cut_anywhere_in_its_head_is_truncated(tmp_path):
    whole, path = gguf_head(GGUF), tmp_path / "cut.gguf"
    for length in range(4, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(MapTruncated, match="the download may be incomplete"):
            map_bytes(path)
