"""A map encodes and decodes as the golden vectors say, and ordinary text never reaches a special token."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given

from leaf_sdk.errors import TextNotUnicode, UnknownTokenId
from leaf_sdk.testing import ids, texts, tiny_map
from leaf_sdk.vocab import TokenMap, load_map

TINY = tiny_map()


def _encodings():
    path = Path(__file__).parents[1] / "vectors" / "byte_level.json"
    return json.loads(path.read_text())["encodings"]


@pytest.mark.parametrize("case", _encodings(), ids=lambda case: case["text"] or "empty")
def test_a_template_encodes_as_the_reference_does(golden_map, case):
    assert golden_map.encode(case["text"], specials=True) == case["ids"]
    assert golden_map.decode(case["ids"]) == case["decoded_specials_kept"]


def test_a_marker_in_ordinary_text_becomes_ordinary_tokens(golden_map):
    encoded = golden_map.encode("a<|im_end|>b")
    assert 303 not in encoded
    assert encoded == [ord(character) for character in "a<|im_end|>b"]
    assert golden_map.decode(encoded) == "a<|im_end|>b"


@given(texts())
def test_ordinary_text_comes_back_exactly_and_holds_no_special_id(text):
    encoded = TINY.encode(text)
    assert TINY.decode_bytes(encoded) == text.encode()
    assert not TINY.special_ids & set(encoded)


@given(texts())
def test_a_template_with_specials_decodes_to_itself(text):
    wrapped = f"<|im_start|>tool\n{text}<|im_end|>"
    encoded = TINY.encode(wrapped, specials=True)
    assert (encoded[0], encoded[-1]) == (300, 301)
    assert TINY.decode(encoded) == wrapped


def test_a_separator_inside_a_marker_keeps_it_ordinary_and_is_left_out():
    plain = TINY.encode("a<|im_start|>b<|im_end|>", specials=True)
    assert TINY.encode("a|<|im_start|>b<|im_end|>".replace("a|", "a~"), specials=True, separator="~") == plain
    cut = TINY.encode("a<~|im_start|>b<|im_end|>", specials=True, separator="~")
    assert cut == [*TINY.encode("a<|im_start|>b"), TINY.special_tokens["<|im_end|>"]]
    assert TINY.encode("hello ~world", separator="~") == TINY.encode("hello world")


def test_the_longest_special_wins_where_one_begins_another(golden_map_path):
    fields = json.loads(golden_map_path.read_text())
    fields["vocab"] |= {"<|im_end|>>": 400}
    fields["special_tokens"] |= {"<|im_end|>>": 400}
    token_map = load_map(json.dumps(fields).encode())
    assert token_map.encode("<|im_end|>><|im_end|>", specials=True) == [400, 303]


def test_a_role_name_in_special_tokens_is_no_spelling_of_its_token(golden_map_path):
    fields = json.loads(golden_map_path.read_text())
    fields["special_tokens"] |= {"eos": 303}
    token_map = load_map(json.dumps(fields).encode())
    assert 303 not in token_map.encode("eos", specials=True)
    assert token_map.token_bytes(303) == b"<|im_end|>"
    assert token_map.encode("<|im_end|>", specials=True) == [303]


def test_a_special_token_outside_the_vocabulary_has_its_name_as_text(golden_map_path):
    fields = json.loads(golden_map_path.read_text())
    fields["special_tokens"] |= {"[PAUSE]": 900}
    token_map = load_map(json.dumps(fields).encode())
    assert token_map.has_id(900)
    assert token_map.decode([900]) == "[PAUSE]"
    assert token_map.encode("[PAUSE]", specials=True) == [900]
    assert 900 not in token_map.encode("[PAUSE]")


def test_a_marker_shaped_entry_that_the_map_does_not_list_is_special_all_the_same(golden_map_path):
    fields = json.loads(golden_map_path.read_text())
    del fields["special_tokens"], fields["tool_calling"]
    token_map = load_map(json.dumps(fields).encode())
    assert token_map.special_ids == {302, 303}
    assert token_map.encode("<|im_end|>", specials=True) == [303]


def test_merges_that_would_build_a_special_token_are_left_out(golden_map_path):
    fields = json.loads(golden_map_path.read_text())
    fields["special_tokens"] |= {"hello": 259}
    token_map = load_map(json.dumps(fields).encode())
    assert token_map.encode("hello") == [258, ord("o")]


def test_ignored_merges_do_not_reach_a_special_token(golden_map_path):
    fields = json.loads(golden_map_path.read_text())
    fields |= {"x_ignore_merges": True, "special_tokens": {**fields["special_tokens"], "hello": 259}}
    assert 259 not in load_map(json.dumps(fields).encode()).encode("hello")


def test_ids_are_counted_and_known_by_themselves_not_by_the_vocabulary_size(golden_map):
    assert len(golden_map) == 273
    assert golden_map.has_id(303)
    assert not golden_map.has_id(270)
    assert not golden_map.has_id(-1)


def test_an_unknown_id_is_a_key_error_with_the_map_in_its_message(golden_map):
    with pytest.raises(UnknownTokenId, match="999") as raised:
        golden_map.token_bytes(999)
    assert isinstance(raised.value, KeyError)
    assert golden_map.map_id in raised.value.message


def test_an_unknown_id_decodes_to_one_replacement_character(golden_map):
    assert golden_map.decode([104, 999, 105]) == "h\ufffdi"


def test_a_lone_surrogate_is_refused_by_name(golden_map):
    with pytest.raises(TextNotUnicode, match="lone surrogate"):
        golden_map.encode("a\ud800")


def test_every_token_has_bytes(smollm: TokenMap):
    assert all(smollm.token_bytes(token_id) for token_id in smollm.vocab.values())
    assert smollm.token_bytes(2) == b"<|im_end|>"
    assert smollm.token_bytes(smollm.vocab["Ġworld"]) == b" world"


@given(ids(TINY))
def test_decoding_is_the_joined_bytes_of_the_tokens(token_ids):
    joined = b"".join(TINY.token_bytes(token_id) for token_id in token_ids)
    assert TINY.decode_bytes(token_ids) == joined
    assert TINY.decode(token_ids) == joined.decode("utf-8", "replace")


def test_importing_the_sdk_does_not_import_tokenizers_or_mcp_or_the_http_client():
    heavy = ["tokenizers", "mcp", "urllib.request", "typer", "hypothesis"]
    check = f"import sys, leaf_sdk; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", check], text=True) == "[]\n"
