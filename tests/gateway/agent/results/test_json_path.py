"""Values that a path selects: their places in the text are those of the values themselves."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.agent.results.json_path import select
from tests.cases import each_of

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


@each_of(
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
@each_of("indent", [None, 2])
def test_path_selects_what_rfc_9535_says(path, values, indent):
    text = json.dumps(DOCUMENT, indent=indent, ensure_ascii=False)
    assert [json.loads(text[each.start : each.end]) for each in select(text, path)] == values


@each_of("path", ["$..id", "$.items[0,1]", "$.items[?@.id]", "$.items[::2]", "$.", "$x y[", "$[*", r"$['\x']"])
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


@each_of("index", range(-5, 5))
def test_index_selects_what_a_list_has_there(index):
    items = [1, 2, 3]
    wanted = [str(items[index])] if -3 <= index < 3 else []
    assert ["[1, 2, 3]"[each.start : each.end] for each in select("[1, 2, 3]", f"$[{index}]")] == wanted


def paths(text: str, path: str) -> list[str]:
    return [each.path for each in select(text, path)]


@each_of(
    ("text", "path", "named"),
    [
        ('{"a": 1}', "$", ["$"]),
        ('{"é b": 1}', "$.*", ['$["é b"]']),
        ('{"a": [5, {"b c": 1, "é": 2}]}', "$.*[*].*", ['$.a[1]["b c"]', "$.a[1].é"]),
        ('[[1, 2], "x", [3, 4]]', "[*][-1]", ["$[0][1]", "$[2][1]"]),
        ('[[1, 2], "x", {"a": 3}]', "$[:][0]", ["$[0][0]"]),
        ('[1, {"0": 2}, "0"]', "$[*]['0']", ["$[1].0"]),
        ('{"say \\"hi\\"": 1}', "$[*]", ['$["say \\"hi\\""]']),
        ('{"": 1}', "$.*", ['$[""]']),
        (f'{{"{"x" * 64}": 1}}', "$.*", [f"$.{'x' * 64}"]),
        (f'{{"{"x" * 65}": 1}}', "$.*", [f'$["{"x" * 64}"]']),
        (f'{{" {"x" * 65}": 1}}', "$.*", [f'$[" {"x" * 63}"]']),
    ],
)
def test_selected_value_is_named_as_a_model_would_write_it(text, path, named):
    assert paths(text, path) == named


@given(st.lists(st.integers(0, 9), max_size=5), *[st.none() | st.integers(-7, 7)] * 2)
def test_slice_selects_what_one_of_a_list_does(items, start, end):
    text, shown = json.dumps(items), ["" if each is None else str(each) for each in (start, end)]
    numbers = range(len(items))[slice(start, end)]

    assert select(text, f"$[{shown[0]}:{shown[1]}]") == [
        (f"$[{number}]", 1 + 3 * number, 2 + 3 * number) for number in numbers
    ]


def test_of_members_with_one_name_the_last_one_is_selected():
    assert select('{"a": 1, "b": 2, "a": 3}', "$.a") == [("$.a", 22, 23)]


def test_blanks_stand_wherever_json_has_them():
    text = ' \t\r\n{ "a" :\t[ 1 ,\r\n2 ] , "b" : { } } '

    assert [
        (each.path, text[each.start : each.end]) for path in ("$", "$.*", "$.a[*]") for each in select(text, path)
    ] == [
        ("$", text.strip()),
        ("$.a", "[ 1 ,\r\n2 ]"),
        ("$.b", "{ }"),
        ("$.a[0]", "1"),
        ("$.a[1]", "2"),
    ]


def test_thousand_values_are_selected_at_most():
    assert paths(json.dumps([0] * 1000), "$[*]") == [f"$[{n}]" for n in range(1000)]
    assert paths(json.dumps([0] * 1001), "$[*]") == [f"$[{n}]" for n in range(1000)]


def test_path_has_32_segments_at_most():
    text = "[" * 33 + "]" * 33

    assert paths(text, "$" + "[0]" * 32) == ["$" + "[0]" * 32]
    with pytest.raises(ValueError, match=r"can't be read at '\[0\]': supported are names"):
        select(text, "$" + "[0]" * 33)


def test_text_of_1_mib_has_paths_and_a_longer_one_has_none():
    text = f'["{"x" * (1024 * 1024 - 4)}"]'

    assert paths(text, "$[0]") == ["$[0]"]
    with pytest.raises(ValueError, match="too large"):
        select(f"{text} ", "$[0]")


@pytest.mark.parametrize(
    ("path", "shown", "place"),
    [
        ("$.a..b", "$.a..b", "..b"),
        ("a..b", ".a..b", "..b"),
        ("", ".", "."),
        ("[0] [1]", "[0] [1]", " [1]"),
        ("$['", "$['", "['"),
        (f"$.a {'b' * 90}", f"$.a {'b' * 76}", f" {'b' * 19}"),
    ],
)
def test_error_names_the_path_and_the_place_that_cannot_be_read(path, shown, place):
    with pytest.raises(ValueError, match="can't be read") as raised:
        select("{}", path)
    assert str(raised.value).startswith(f"path {shown!r} can't be read at {place!r}: supported are names, indices,")


@pytest.mark.parametrize(
    ("path", "key"), [(r"$['say \"hi\"']", 'say "hi"'), ("$['say \"hi\"']", 'say "hi"'), (r"$['a\\\'\u00e9']", "a\\'é")]
)
def test_name_in_single_quotes_may_have_both_kinds_and_escapes(path, key):
    assert [json.loads(json.dumps({key: 7})[each.start : each.end]) for each in select(json.dumps({key: 7}), path)] == [
        7
    ]


def test_values_need_no_blanks_between_them():
    text = '{"a":1,"b":[2,{"c":3}]}'

    assert [text[each.start : each.end] for path in ("$.*", "$.b[*]", "$.b[1].c") for each in select(text, path)] == [
        "1",
        '[2,{"c":3}]',
        "2",
        '{"c":3}',
        "3",
    ]
