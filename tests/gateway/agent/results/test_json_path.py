"""Values that a path selects: their places in the text are those of the values themselves."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.results.json_path import select

DOCUMENT = {
    "items": [{"id": 1, "a b": "x"}, {"id": 2, "sub": {"id": 3}}, [4, 5]],
    "x.y": "dot",
    "o'k": True,
    "": 0,
    "é": "ü",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("$", [DOCUMENT]),
        ("$.items[0].id", [1]),
        ("items[0].id", [1]),
        ("$['items'][1]['sub'].id", [3]),
        ('$["x.y"]', ["dot"]),
        (r"$['o\'k']", [True]),
        ("$['']", [0]),
        ("$.é", ["ü"]),
        ("$.items[-1][0]", [4]),
        ("$.items[-9]", []),
        ("$.items[9]", []),
        ("$.items[1:]", DOCUMENT["items"][1:]),
        ("$.items[:2].id", [1, 2]),
        ("$.items[*].id", [1, 2]),
        ("$.items[2][*]", [4, 5]),
        ("$.items.id", []),
        ("$.nothing", []),
        ("$.items[0].id[0]", []),
    ],
)
@pytest.mark.parametrize("indent", [None, 2])
def test_path_selects_what_rfc_9535_says(path, values, indent):
    text = json.dumps(DOCUMENT, indent=indent, ensure_ascii=False)
    assert [json.loads(text[each.start : each.end]) for each in select(text, path)] == values


@pytest.mark.parametrize(
    "path", ["$..id", "$.items[0,1]", "$.items[?@.id]", "$.items[::2]", "$.", "$x y[", "$[*", r"$['\x']"]
)
def test_path_beyond_the_supported_ones_says_what_is_supported(path):
    with pytest.raises(ValueError, match="names, indices, slices and wildcards"):
        select("{}", path)


def test_half_a_character_in_a_key_is_replaced_in_its_name():
    assert [each.path for each in select('{"\\ud800": 1}', "$.*")] == ['$["?"]']


@pytest.mark.parametrize("text", ["", "x", "12", '{"a": ', "[" * 100_000, "nul"])
def test_text_that_is_not_json_has_no_paths(text):
    with pytest.raises(ValueError, match="not JSON"):
        select(text, "$.a")


@given(JSON.filter(lambda value: isinstance(value, (list, dict))), st.sampled_from([None, 1]), st.booleans())
def test_every_selected_value_is_named_by_its_own_path(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    for path in ("$[*]", "$[*][*]", "$.*.*"):
        for found in select(text, path):
            own = text[found.start : found.end]
            assert own in [text[each.start : each.end] for each in select(text, found.path)]


def test_text_that_is_too_large_has_no_paths():
    with pytest.raises(ValueError, match="too large for paths: read it by offset or lines, or search"):
        select(f"[{'1,' * 600_000}1]", "$[0]")


@pytest.mark.parametrize("path", ["$[-1]", "$[49999]", "$[:]"])
def test_many_items_are_not_all_listed(path):
    text = f"[{'1,' * 49_999}1]"
    tracemalloc.start()
    try:
        select(text, path)
        assert tracemalloc.get_traced_memory()[1] < 20 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("index", range(-5, 5))
def test_index_selects_what_a_list_has_there(index):
    items = [1, 2, 3]
    wanted = [str(items[index])] if -3 <= index < 3 else []
    assert ["[1, 2, 3]"[each.start : each.end] for each in select("[1, 2, 3]", f"$[{index}]")] == wanted
