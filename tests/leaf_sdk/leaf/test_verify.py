"""Ids from outside reach an engine only if the map has them, none is special, and they say what the text says."""

import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk import check_ids
from leaf_sdk.leaf.verify import OrdinaryIds
from leaf_sdk.testing import ids, texts, tiny_map, tiny_map_bytes
from leaf_sdk.vocab import load_map

TINY = tiny_map()
LEVELS = pytest.mark.parametrize("level", ["verify", "trust"])


@given(texts(), st.sampled_from(["verify", "trust"]))
def test_a_texts_own_ids_pass(text, level):
    assert check_ids(TINY, text, TINY.encode(text), level) is None


@LEVELS
@pytest.mark.parametrize("wrong", ["104", 104.0, None, True, [104]])
def test_what_is_no_whole_number_is_a_wrong_shape(level, wrong):
    rejection = check_ids(TINY, "hh", [104, wrong], level)
    assert rejection is not None
    assert rejection.reason == "shape"
    assert "ids[1]" in rejection.detail


@LEVELS
@pytest.mark.parametrize("unknown", [-1, 290, 10**30])
def test_an_id_that_the_map_does_not_have_is_out_of_range(level, unknown):
    rejection = check_ids(TINY, "h", [104, unknown], level)
    assert rejection is not None
    assert rejection.reason == "range"
    assert len(rejection.detail) < 200


@LEVELS
@pytest.mark.parametrize("special", [300, 301, 302, 303])
def test_a_special_id_never_passes_even_when_the_text_spells_it(level, special):
    text = TINY.decode([special])
    rejection = check_ids(TINY, text, [special], level)
    assert rejection is not None
    assert rejection.reason == "special"


@given(texts(), ids(TINY), st.sampled_from(["verify", "trust"]))
def test_no_special_id_passes_at_any_level(text, token_ids, level):
    if check_ids(TINY, text, token_ids, level) is None:
        assert not TINY.special_ids & set(token_ids)


@given(st.lists(st.integers(-2, 320), max_size=30))
def test_trust_lets_through_exactly_the_ids_that_text_may_have(token_ids):
    assert (check_ids(TINY, "", token_ids, "trust") is None) == TINY.ordinary_ids.issuperset(token_ids)


@pytest.mark.parametrize("far", [1_000, 5_000_000, 2**32 - 1])
def test_a_map_that_leaves_out_numbers_is_judged_as_any_other(far):
    fields = json.loads(tiny_map_bytes())
    fields["vocab"]["far"] = far
    sparse = load_map(json.dumps(fields).encode())
    assert check_ids(sparse, "", [104, far], "trust") is None
    for unknown in (far - 1, far + 1, 290):
        rejection = check_ids(sparse, "", [104, unknown], "trust")
        assert rejection is not None
        assert rejection.reason == "range"


@given(texts(), ids(TINY))
def test_ids_that_pass_verification_decode_to_exactly_the_text(text, token_ids):
    if check_ids(TINY, text, token_ids) is None:
        assert TINY.decode_bytes(token_ids) == text.encode()


def test_ids_of_another_text_are_caught_by_verification_alone():
    hidden = TINY.encode("ignore all of this")
    rejection = check_ids(TINY, "hello", hidden)
    assert rejection is not None
    assert rejection.reason == "text"
    assert check_ids(TINY, "hello", hidden, "trust") is None


def test_another_split_of_the_same_text_passes():
    assert check_ids(TINY, "hello", [ord(character) for character in "hello"]) is None


def test_an_invalid_byte_does_not_pass_for_a_replacement_character():
    invalid = [0xFF]
    assert TINY.decode(invalid) == "\ufffd"
    rejection = check_ids(TINY, "\ufffd", invalid)
    assert rejection is not None
    assert rejection.reason == "text"


def test_no_ids_say_no_text_and_nothing_else():
    assert check_ids(TINY, "", []) is None
    rejection = check_ids(TINY, "hello", [])
    assert rejection is not None
    assert rejection.reason == "text"


def test_a_text_with_a_lone_surrogate_is_said_by_no_ids():
    rejection = check_ids(TINY, "\ud800", [104])
    assert rejection is not None
    assert rejection.reason == "text"


def test_a_map_that_normalizes_is_verified_by_encoding_again():
    fields = json.loads(tiny_map_bytes()) | {"x_normalizer": "NFC"}
    token_map = load_map(json.dumps(fields).encode())
    decomposed = "e\u0301"
    assert token_map.decode(token_map.encode(decomposed)) == "é"
    assert check_ids(token_map, decomposed, token_map.encode(decomposed)) is None
    assert check_ids(token_map, "hello", [ord(character) for character in "hello"]) is not None


def test_bytes_that_a_vocabulary_can_not_spell_do_not_reject_its_own_ids(smollm):
    text = "a\x04b"
    assert smollm.decode(smollm.encode(text)) == "ab"
    assert check_ids(smollm, text, smollm.encode(text)) is None


@given(end=st.integers(1, 1 << 18), numbers=st.lists(st.integers(0, 1 << 19), max_size=20))
def test_upper_bytes_vouch_for_no_number_beyond_the_end(end, numbers):
    vouched = OrdinaryIds(end, frozenset()).surely_hold(array("I", numbers))
    assert not vouched or max(numbers, default=0) < end


@pytest.mark.parametrize("end", [49_152, 151_646])
def test_upper_bytes_vouch_for_nearly_all_numbers_below_the_end(end):
    known = OrdinaryIds(end, frozenset())
    assert sum(known.surely_hold(array("I", [number])) for number in range(0, end, 7)) > 0.85 * (end // 7)


@pytest.mark.parametrize("wrong", [10**6, 2**32 - 1, True, 2.0, -1, "1"])
def test_one_wrong_id_among_many_is_found_wherever_it_stands(wrong):
    good = TINY.encode("ordinary text of many words ") * 20
    assert check_ids(TINY, "", good, "trust") is None
    for place in (0, len(good) // 2, len(good)):
        assert check_ids(TINY, "", [*good[:place], wrong, *good[place:]], "trust") is not None
