"""Ids that a llama.cpp stream loses are found again from the bytes."""

import json

from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.engine.wire.llama_cpp_json import IdRepair
from leaf_sdk.vocab import TokenMap, load_map
from leaf_sdk.vocab.byte_level import ALPHABET
from leaf_sdk.vocab.utf8 import cuts_a_character


def messages_of(ids: list[int], token_map: TokenMap) -> list[tuple[list[int], str, int]]:
    """What the server sends for `ids`: nothing while its text ends inside a character, then all of it with one id."""
    sent: list[tuple[list[int], str, int]] = []
    held = b""
    for predicted, token_id in enumerate(ids, start=1):
        held += token_map.token_bytes(token_id)
        if not cuts_a_character(held):
            sent.append(([token_id], held.decode(), predicted))
            held = b""
    return sent


def ids_by_byte(token_map: TokenMap) -> dict[int, int]:
    """The ids of one byte each: a tokenization that no tokenizer would choose."""
    ordinary = (i for i in token_map.vocab.values() if i not in token_map.special_ids)
    return {data[0]: i for i in ordinary if len(data := token_map.token_bytes(i)) == 1}


def test_a_character_in_several_tokens_comes_back_as_the_tokens_that_were_generated(model_map: TokenMap) -> None:
    generated = [177, 247, 126, 16736, 122, 216, 10813, 242, 218]
    repair = IdRepair(model_map)
    repaired = [repair.feed(*message) for message in messages_of(generated, model_map)]

    assert [i for r in repaired for i in r.ids] == generated
    assert sum(r.found for r in repaired) == 5
    assert not any(r.guessed for r in repaired)


def test_what_the_tokenizer_writes_is_repaired_exactly(model_map: TokenMap) -> None:
    @given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
    def check(text: str) -> None:
        generated = model_map.encode(text)
        assume(model_map.decode(generated) == text)  # some bytes have no token in SmolLM2
        repair = IdRepair(model_map)
        assert [i for m in messages_of(generated, model_map) for i in repair.feed(*m).ids] == generated

    check()


def test_an_odd_tokenization_keeps_its_bytes_and_its_count_and_says_when_it_is_a_guess(model_map: TokenMap) -> None:
    by_byte = ids_by_byte(model_map)

    @given(text=st.text(st.characters(codec="utf-8"), min_size=1, max_size=12))
    def check(text: str) -> None:
        assume(set(text.encode()) <= by_byte.keys())
        generated = [by_byte[byte] for byte in text.encode()]
        repair = IdRepair(model_map)
        repaired = [repair.feed(*message) for message in messages_of(generated, model_map)]
        ids = [i for r in repaired for i in r.ids]

        assert len(ids) == len(generated)
        assert model_map.decode_bytes(ids) == text.encode()
        assert ids == generated or any(r.guessed for r in repaired)

    check()


def two_way_map() -> TokenMap:
    """A map in which the first three bytes of 😀 are two tokens in two ways; the tokenizer takes F0 9F first."""
    vocab = {character: byte for byte, character in enumerate(ALPHABET)}
    halves = [(ALPHABET[0xF0], ALPHABET[0x9F]), (ALPHABET[0x9F], ALPHABET[0x98])]
    vocab |= {a + b: 256 + n for n, (a, b) in enumerate(halves)}
    fields = {
        "id": "test/two-ways",
        "version": "2",
        "vocab_size": len(vocab),
        "vocab": vocab,
        "merges": [f"{a} {b}" for a, b in halves],
        "encoder": "byte_level",
        "pre_tokenizer_pattern": r"\s+|\S+",
    }
    return load_map(json.dumps(fields).encode())


def test_where_several_splits_fit_the_tokenizers_own_wins_and_is_marked_as_a_guess() -> None:
    repaired = IdRepair(two_way_map()).feed([0x80], "😀", 3)

    assert repaired.ids == (256, 0x98, 0x80)
    assert repaired.found == 2
    assert repaired.guessed


def test_a_message_without_a_gap_is_taken_as_it_is(model_map: TokenMap) -> None:
    assert IdRepair(model_map).feed([74], "Z", 1).ids == (74,)


def test_ids_stay_where_the_text_shows_that_none_was_lost(model_map: TokenMap) -> None:
    (whole,) = model_map.encode("he")
    apart = [*model_map.encode("h"), *model_map.encode("e")]
    repaired = IdRepair(model_map).feed(apart, "he", 3)

    assert whole not in apart
    assert (repaired.ids, repaired.found, repaired.missed) == (tuple(apart), 0, 1)


def test_text_that_no_split_gives_is_spelled_by_the_tokenizer_and_counted_as_missed(model_map: TokenMap) -> None:
    repaired = IdRepair(model_map).feed([74], "abcZ", 3)

    assert repaired.ids == tuple(model_map.encode("abcZ"))
    assert repaired.missed == 2


def test_a_character_cut_off_by_a_length_limit_is_counted_as_missing(model_map: TokenMap) -> None:
    repair = IdRepair(model_map)
    repair.feed([74], "Z", 1)

    assert repair.missing(3) == 2


def test_message_without_ids_has_lost_all_of_them(model_map: TokenMap) -> None:
    repair = IdRepair(model_map)
    found = repair.feed([], "é", 2)

    assert (found.ids, found.found, found.missed, found.guessed) == ((), 0, 2, False)
    assert (repair.missing(3), repair.missing(1)) == (1, 0)
    assert not repair.follows(1, 4)
    assert repair.follows(1, 3)
