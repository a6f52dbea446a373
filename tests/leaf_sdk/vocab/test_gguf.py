"""A GGUF head gives its tokenizer, or says where it broke off; whatever the bytes, nothing else is raised."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.errors import CodecError, MapTruncated, MapUnsupported, NotAMap
from leaf_sdk.testing.gguf import gguf_head, gguf_string
from leaf_sdk.vocab import read_gguf_tokenizer

SMALL = {
    "general.name": "Tiny",
    "some.nested": [["x", "y"], ["z"]],
    "some.float": 1.5,
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": ["a", "b", "ab", "<|end|>"],
    "tokenizer.ggml.token_type": [1, 1, 1, 3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.bos_token_id": 3,
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.chat_template": "{{ x }}",
}


def test_the_packaged_model_gives_its_tokenizer(smollm_path):
    tokenizer = read_gguf_tokenizer(smollm_path.read_bytes()[: 4 * 2**20])
    assert (tokenizer.model, tokenizer.pre, tokenizer.name) == ("gpt2", "smollm", "smollm2")
    assert tokenizer.organization == "HuggingFaceTB"
    assert (len(tokenizer.tokens), len(tokenizer.token_types), len(tokenizer.merges)) == (49152, 49152, 48900)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, False)
    assert tokenizer.tokens[2] == "<|im_end|>"
    assert tokenizer.token_types[2] == 3
    assert "<|im_start|>" in (tokenizer.chat_template or "")


@pytest.mark.parametrize("version", [2, 3])
def test_a_small_head_is_read_whole(version):
    tokenizer = read_gguf_tokenizer(memoryview(gguf_head(SMALL, version=version)))
    assert tokenizer.tokens == ["a", "b", "ab", "<|end|>"]
    assert tokenizer.token_types == [1, 1, 1, 3]
    assert tokenizer.merges == ["a b"]
    assert tokenizer.name == "Tiny"
    assert tokenizer.eos_id is None
    assert tokenizer.bos_id == 3


def test_tokens_without_types_are_normal():
    pairs = {key: value for key, value in SMALL.items() if key != "tokenizer.ggml.token_type"}
    assert read_gguf_tokenizer(gguf_head(pairs)).token_types == [1, 1, 1, 1]


def test_a_head_cut_anywhere_says_where_it_broke_off():
    whole = gguf_head(SMALL)
    for size in range(4, len(whole)):
        with pytest.raises(MapTruncated) as raised:
            read_gguf_tokenizer(whole[:size])
        assert raised.value.offset <= size


def test_a_length_larger_than_the_file_is_refused_before_anything_is_allocated():
    claim = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<IIQ", 9, 8, 2**60)
    with pytest.raises(MapTruncated):
        read_gguf_tokenizer(claim)
    numbers = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<IIQ", 9, 4, 2**60)
    with pytest.raises(MapTruncated):
        read_gguf_tokenizer(numbers)


def test_arrays_nested_without_end_are_refused():
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<I", 9)
    with pytest.raises(NotAMap, match="nest"):
        read_gguf_tokenizer(head + struct.pack("<IQ", 9, 1) * 50)


def test_a_claim_of_millions_of_keys_is_refused():
    with pytest.raises(NotAMap, match="keys"):
        read_gguf_tokenizer(b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40))


def test_an_unknown_value_type_is_refused():
    with pytest.raises(NotAMap, match="type 99"):
        read_gguf_tokenizer(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + gguf_string("k") + struct.pack("<I", 99))


@pytest.mark.parametrize("version", [1, 4, 0x03000000])
def test_another_version_is_refused_by_number(version):
    with pytest.raises(MapUnsupported, match=str(version)):
        read_gguf_tokenizer(gguf_head(SMALL, version=version))


def test_a_file_of_another_kind_is_refused():
    with pytest.raises(NotAMap, match="not a GGUF"):
        read_gguf_tokenizer(b"PK\x03\x04")


@pytest.mark.parametrize(
    "changed",
    [
        {"tokenizer.ggml.tokens": "a"},
        {"tokenizer.ggml.tokens": [1, 2]},
        {"tokenizer.ggml.token_type": [1]},
        {"tokenizer.ggml.merges": 4},
    ],
)
def test_a_tokenizer_of_the_wrong_shape_is_refused(changed):
    with pytest.raises(NotAMap):
        read_gguf_tokenizer(gguf_head(SMALL | changed))


def test_a_file_without_a_tokenizer_is_refused():
    with pytest.raises(NotAMap, match="holds no tokenizer"):
        read_gguf_tokenizer(gguf_head({"general.name": "vision"}))


@given(st.binary())
def test_garbage_after_the_magic_raises_our_own_error(data):
    with pytest.raises(CodecError):
        read_gguf_tokenizer(b"GGUF" + data)


@given(st.integers(4, len(gguf_head(SMALL)) - 1), st.integers(0, 255))
def test_one_damaged_byte_is_read_or_refused_by_our_own_error(place, byte):
    data = bytearray(gguf_head(SMALL))
    data[place] = byte
    with contextlib.suppress(CodecError):
        read_gguf_tokenizer(bytes(data))
