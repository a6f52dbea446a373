"""Maps are checked before they are believed, and what can't be reproduced exactly is refused by name."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk.errors import CodecError, MapHashMalformed, MapHashMismatch, MapUnsupported, NotAMap
from leaf_sdk.testing import tiny_map_bytes
from leaf_sdk.vocab import build_map, load_map
from leaf_sdk.vocab.pre_tokenizers import SMOLLM
from tests.cases import each_of

FIELDS = json.loads(tiny_map_bytes())


def _load(**changed):
    fields = {**FIELDS, **changed}
    return load_map(json.dumps({key: value for key, value in fields.items() if value is not ...}).encode())


def test_the_golden_map_is_read_whole(golden_map, vectors):
    assert golden_map.map_id == vectors("byte_level")["sha256"]
    assert golden_map.id == "codec-test/tiny-byte-level"
    assert golden_map.version == "2"
    assert golden_map.special_ids == {300, 301, 302, 303}
    assert golden_map.merges[0] == ("h", "e")
    assert golden_map.encoder == "byte_level"
    assert golden_map.exact_decode
    calls = golden_map.tool_calling
    assert (calls.convention, calls.start, calls.end) == ("qwen25", "<tool_call>", "</tool_call>")
    assert (calls.args_format, calls.result_format) == ("json", "json")


def test_a_map_is_accepted_under_its_hash_in_any_spelling():
    data = tiny_map_bytes()
    digest = load_map(data).map_id
    assert load_map(data, digest.removeprefix("sha256:").upper()).map_id == digest


def test_one_changed_byte_is_a_mismatch_that_shows_both_hashes():
    data = tiny_map_bytes()
    expected = load_map(data).map_id
    with pytest.raises(MapHashMismatch) as raised:
        load_map(data + b"\n", expected)
    assert raised.value.expected == expected
    assert raised.value.actual == load_map(data + b"\n").map_id
    assert expected in raised.value.message


def test_a_malformed_hash_is_refused_before_the_map_is_read():
    with pytest.raises(MapHashMalformed):
        load_map(b"no map at all", "sha256:short")


def test_every_map_that_the_reference_refuses_is_refused(vectors):
    wrong = [case for case in vectors("map_validation")["cases"] if case.get("error") and "map" in case]
    assert len(wrong) == 8
    for case in wrong:
        with pytest.raises((NotAMap, MapUnsupported)):
            load_map(json.dumps(case["map"]).encode())


@each_of(
    ("changed", "error", "word"),
    [
        ({"id": ""}, NotAMap, "id"),
        ({"id": 7}, NotAMap, "id"),
        ({"version": 2}, NotAMap, "version"),
        ({"vocab_size": 0}, NotAMap, "vocab_size"),
        ({"vocab_size": True}, NotAMap, "vocab_size"),
        ({"vocab": ...}, NotAMap, "vocab"),
        ({"vocab": []}, NotAMap, "vocab"),
        ({"vocab": {"a": -1}}, NotAMap, "vocab"),
        ({"vocab": {"a": 2**32}}, NotAMap, "vocab"),
        ({"vocab": {"a": True}}, NotAMap, "vocab"),
        ({"vocab": {"a": 1, "b": 1}}, NotAMap, "share one id"),
        ({"vocab": {"": 1}}, NotAMap, "empty token"),
        ({"vocab": {"\ud800": 1, "b": 2}}, NotAMap, "surrogate"),
        ({"special_tokens": {"a": "b"}}, NotAMap, "special_tokens"),
        ({"merges": ...}, NotAMap, "merges"),
        ({"merges": ["ab"]}, NotAMap, "merges"),
        ({"merges": [7]}, NotAMap, "merges"),
        ({"merges": ["h zz"]}, NotAMap, "merges"),
        ({"merges": ["h i"]}, NotAMap, "merges"),
        ({"encoder": "unigram"}, NotAMap, "encoder"),
        ({"byte_fallback_start": 3}, NotAMap, "byte_fallback"),
        ({"tool_calling": []}, NotAMap, "tool_calling"),
        ({"tool_calling": {**FIELDS["tool_calling"], "convention": "hermes"}}, NotAMap, "convention"),
        ({"tool_calling": {**FIELDS["tool_calling"], "args_format": "xml"}}, NotAMap, "args_format"),
        ({"tool_calling": {**FIELDS["tool_calling"], "markers": {"start": "x", "end": "y"}}}, NotAMap, "markers"),
        ({"encoder": "metaspace"}, MapUnsupported, "metaspace"),
        ({"encoder": ...}, MapUnsupported, "encoder"),
        ({"_synthetic": True}, MapUnsupported, "_synthetic"),
        ({"x_normalizer": "Lowercase"}, MapUnsupported, "Lowercase"),
        ({"special_tokens": {"a": 97}}, MapUnsupported, "special token"),
        ({"pre_tokenizer_pattern": ...}, MapUnsupported, "pre-tokenizer"),
        ({"pre_tokenizer_program": {"version": 3, "stages": []}}, MapUnsupported, "pre_tokenizer_program"),
        ({"pre_tokenizer_pattern": ..., "pre_tokenizer_program": {"version": 1, "ops": []}}, MapUnsupported, "program"),
    ],
)
def test_a_field_that_is_wrong_is_named(changed, error, word):
    with pytest.raises(error, match=word):
        _load(**changed)


def test_a_version_1_map_is_refused_with_a_way_out(vectors):
    with pytest.raises(MapUnsupported, match="codec-leaf map build"):
        load_map(json.dumps(vectors("v1_map")["map"]).encode())


def test_unknown_keys_are_ignored():
    assert _load(zstd_dicts=[{"format": "msgpack"}], zzz=1).encode("hello") == _load().encode("hello")


def test_a_pattern_that_does_not_compile_is_refused_when_it_is_first_needed():
    token_map = _load(pre_tokenizer_pattern="((")
    with pytest.raises(MapUnsupported, match="pre_tokenizer_pattern"):
        token_map.encode("x")


def test_a_version_2_program_wins_over_the_pattern_beside_it():
    program = {
        "version": 2,
        "stages": [
            {"stage": "digits_isolate", "mode": "individual"},
            {
                "stage": "alternation",
                "ops": [
                    {"op": "literals", "patterns": ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"]},
                    {"op": "letters", "lead_space": True},
                    {"op": "numbers", "lead_space": True},
                    {"op": "punct_run", "lead_space": True},
                    {"op": "trailing_ws"},
                    {"op": "ws_run"},
                ],
            },
        ],
    }
    assert _load(pre_tokenizer_program=program).pre_tokenizer == SMOLLM


def test_a_version_1_program_beside_a_pattern_leaves_the_pattern_in_charge(golden_map):
    assert golden_map.pre_tokenizer.pattern.startswith("(?i:'s|'t|")


@given(st.binary())
def test_garbage_raises_our_own_error(data):
    with pytest.raises(CodecError):
        load_map(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*FIELDS, "tokens", "x"]), inner),
    ),
    st.sampled_from(sorted(FIELDS)),
)
def test_a_map_with_any_json_in_a_field_is_read_or_refused_by_our_own_error(value, key):
    with contextlib.suppress(CodecError):
        _load(**{key: value})


@each_of("function", [load_map, build_map])
@each_of("given", ["map.json", Path("map.json"), None, {"id": "x"}])
def test_what_is_not_bytes_is_refused_with_the_function_that_opens_paths(function, given):
    with pytest.raises(TypeError, match=rf"{function.__name__} takes the bytes of a file, got .*leaf_sdk\.open_map"):
        function(given)
