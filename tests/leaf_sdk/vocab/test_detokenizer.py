from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk import Detokenizer
from leaf_sdk.testing import ids, texts, tiny_map

TINY = tiny_map()
ANY_IDS = st.one_of(ids(TINY), st.lists(st.integers(0, 255)), texts().map(TINY.encode))


@given(ANY_IDS, st.data())
def test_any_split_of_the_ids_gives_the_text_of_the_whole(token_ids, data):
    detokenizer = Detokenizer(TINY)
    pieces: list[str] = []
    rest = token_ids
    while rest:
        size = data.draw(st.integers(0, len(rest))) or 1
        pieces.append(detokenizer.feed(rest[:size]))
        rest = rest[size:]
    pieces.append(detokenizer.close())
    assert "".join(pieces) == TINY.decode(token_ids)


@given(texts())
def test_no_piece_of_a_valid_stream_shows_half_a_character(text):
    detokenizer = Detokenizer(TINY)
    pieces = [detokenizer.feed([token_id]) for token_id in TINY.encode(text)]
    assert "".join(pieces) == text
    assert detokenizer.close() == ""


def test_an_emoji_waits_for_its_last_byte(golden_map):
    detokenizer = Detokenizer(golden_map)
    assert [detokenizer.feed(part) for part in ([240, 159], [154], [128, 256])] == ["", "", "🚀he"]


def test_an_unfinished_character_becomes_one_replacement_at_the_end(golden_map):
    detokenizer = Detokenizer(golden_map)
    assert detokenizer.feed([240, 159]) == ""
    assert detokenizer.close() == "\ufffd"
    assert detokenizer.close() == ""


def test_an_unknown_id_in_a_stream_becomes_a_replacement_character(golden_map):
    detokenizer = Detokenizer(golden_map)
    assert detokenizer.feed([999]) + detokenizer.close() == "\ufffd"
