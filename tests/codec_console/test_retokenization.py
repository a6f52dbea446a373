"""Ids tokenized again: the differences are exact, and all that is not told is the same."""

from array import array
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from codec_console.hidden import hidden_ids
from codec_console.retokenization import differences
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
WRITTEN = st.lists(st.sampled_from(sorted(TINY.ordinary_ids)), max_size=40)
TEXTS = st.text("hello world\n<|im_end|>é\U0001f600", max_size=40)


@given(TEXTS)
def test_ids_that_a_tokenizer_would_choose_come_back(text: str):
    assert differences(array("I", TINY.encode(text)), TINY, specials=False) == []


@given(st.lists(TEXTS, max_size=8))
def test_ids_put_together_otherwise_differ_exactly_where_it_is_said(parts: list[str]):
    # Cut at places where a tokenizer would not, each part is tokenized alone.
    ids = array("I", chain.from_iterable(TINY.encode(part) for part in parts))
    again = TINY.encode("".join(parts))
    found = differences(ids, TINY, specials=False)

    assert found is not None
    made: list[int] = []
    at = 0
    for each in found:
        assert each.start >= at
        assert tuple(ids[each.start : each.start + each.count]) != each.others
        assert TINY.decode_bytes(ids[each.start : each.start + each.count]) == TINY.decode_bytes(each.others)
        made += [*ids[at : each.start], *each.others]
        at = each.start + each.count
    assert [*made, *ids[at:]] == again


@given(WRITTEN)
def test_ids_that_are_no_text_are_not_compared(ids: list[int]):
    found = differences(array("I", ids), TINY, specials=False)
    try:
        TINY.decode_bytes(ids).decode()
    except UnicodeDecodeError:
        assert found is None
    else:
        assert found is not None


@given(TEXTS, st.text("abcdef", min_size=4, max_size=12), TEXTS)
def test_hidden_ids_are_those_that_spell_a_part_of_a_secret(before: str, secret: str, after: str):
    ids = [*TINY.encode(before), *TINY.encode(secret), *TINY.encode(after)]
    hidden = hidden_ids(array("I", ids), TINY, {secret})

    start = len(TINY.encode(before))
    assert set(range(start, start + len(TINY.encode(secret)))) <= hidden
    assert secret not in TINY.decode(each for n, each in enumerate(ids) if n not in hidden)
