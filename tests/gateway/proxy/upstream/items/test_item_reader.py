"""What is kept and logged of the malformed items that one server lists, however many there are and how often."""

import pytest

from gateway.proxy.upstream.items.item_flaws import Flaw
from gateway.proxy.upstream.items.item_reader import ItemReader, MalformedField, read_item

FINE = {"name": "t", "inputSchema": {"type": "object"}}


def bad(name, **more):
    return {"name": name, "inputSchema": "x", **more}


@pytest.fixture
def reader():
    return ItemReader("up")


def test_items_that_clients_can_read_are_returned_and_why_others_are_not(reader):
    odd = {**FINE, "name": "odd", "title": 7}
    read = reader.read("tools", [FINE, bad("bad"), odd, 7], modern=False)

    assert read == [FINE, {**FINE, "name": "odd"}]
    assert read[0] is FINE
    assert reader.why_left_out("tools") == {
        "bad": "inputSchema: expected an object, got 'x'",
        "number 4 in the list": "the item: expected an object, got 7",
    }
    assert reader.why_left_out("prompts") == {}
    assert reader.malformed[1] == MalformedField(
        "tools", "odd", "title", "expected a string, got 7; the field is dropped", left_out=False
    )
    assert [each.left_out for each in reader.malformed] == [True, False, True]


def test_item_stays_malformed_until_it_is_seen_to_be_fine(reader):
    reader.read("tools", [bad("a"), bad("b"), 7], modern=False)
    reader.read("tools", [], modern=False)
    shorter = list(reader.why_left_out("tools"))
    reader.read("prompts", [{"name": "a"}], modern=False)
    other = list(reader.why_left_out("tools"))
    reader.read("tools", [{**FINE, "name": "a"}, FINE, FINE], modern=False)

    assert shorter == other == ["a", "b", "number 3 in the list"]
    assert list(reader.why_left_out("tools")) == ["b"]


def test_each_flaw_is_logged_once_and_of_many_only_the_first_by_name(reader, caplog):
    reader.read("tools", [bad(f"t{number}") for number in range(20)], modern=False)
    reader.read("tools", [bad(f"t{number}") for number in range(20)], modern=False)
    few = caplog.text
    caplog.clear()
    reader.read("tools", [bad(f"u{number}") for number in range(22)], modern=False)

    assert few.count("a listed field is malformed") == 20
    assert "more listed fields" not in few
    assert caplog.text.count("a listed field is malformed") == 20
    assert "'count': 2, 'event': 'more listed fields are malformed'" in caplog.text


def test_server_that_thinks_up_items_for_ever_fills_no_memory(reader, caplog):
    for start in range(0, 10_001, 1000):
        reader.read("tools", [bad(f"t{start + number}") for number in range(1000)], modern=False)
    caplog.clear()
    kept = len(reader.malformed)
    reader.read("tools", [bad("t0")], modern=False)

    assert kept == 1000
    assert "'item': 't0'" in caplog.text


def test_name_that_is_too_long_is_cut_where_it_is_told(reader, caplog):
    reader.read("tools", [bad("n" * 128), bad("m" * 500)], modern=False)
    short, long = reader.why_left_out("tools")

    assert short == "n" * 128
    assert len(long) < 200
    assert "m" * 200 not in caplog.text


@pytest.mark.parametrize(
    ("page", "items", "words"),
    [
        ({"tools": [1, 2]}, [1, 2], None),
        ({"tools": {}}, [], "expected a list, got {}; it is read as an empty one"),
        ({}, [], "expected a list, got nothing; it is read as an empty one"),
    ],
)
def test_page_that_holds_no_list_is_an_empty_one(reader, caplog, page, items, words):
    assert reader.read_page("tools", "tools", page) == items
    assert (words is None) == ("the list" not in caplog.text)
    assert words is None or words in caplog.text


def test_list_that_is_promised_and_refused_is_logged(reader, caplog):
    for _ in range(2):
        reader.warn_unknown("tools", "tools", "tools/list")

    assert caplog.text.count("it promises this list, and refuses tools/list as an unknown method") == 1


@pytest.mark.parametrize(
    ("cursor", "read", "words"),
    [
        ("next", "next", None),
        (None, None, None),
        ("seen", None, "'seen' came before; the list is taken to end here"),
        ("", None, "expected a cursor, got ''; the list is taken to end here"),
        (7, None, "expected a cursor, got 7; the list is taken to end here"),
    ],
)
def test_list_ends_at_a_cursor_that_leads_nowhere(reader, caplog, cursor, read, words):
    assert reader.read_cursor("tools", cursor, {"seen"}) == read
    assert (words is None) == (caplog.text == "")
    assert words is None or words in caplog.text


@pytest.mark.parametrize(
    ("name", "title", "read"), [(None, 7, "x:1"), (None, "One", "One"), (7, "One", "One"), ("own", "One", "own")]
)
def test_resource_without_a_name_is_called_by_its_title_or_its_address(name, title, read):
    flaws = list[Flaw]()
    item = read_item("resources", {"uri": "x:1", "name": name, "title": title}, flaws, modern=False)

    assert item is not None
    assert item["name"] == read
    assert read_item("prompts", {"name": None, "title": "One"}, [], modern=False) is None


@pytest.mark.parametrize(
    ("value", "kept"), [(0, True), (1, True), (0.5, True), (-0.1, False), (1.1, False), (True, False), ("1", False)]
)
def test_priority_is_a_number_from_0_to_1(value, kept):
    item = read_item("resources", {"uri": "x:1", "name": "r", "annotations": {"priority": value}}, [], modern=False)

    assert item is not None
    assert ("priority" in item["annotations"]) is kept


@pytest.mark.parametrize(("size", "kept"), [(0, True), (2**32 - 1, True), (2**32, False), (-1, False), (0.5, False)])
def test_size_is_a_number_of_bytes_that_every_sdk_reads(size, kept):
    item = read_item("resources", {"uri": "x:1", "name": "r", "size": size}, [], modern=False)

    assert item is not None
    assert ("size" in item) is kept


@pytest.mark.parametrize(
    ("icons", "read"), [([], []), ([{"src": "a"}], [{"src": "a"}]), ([7], None), ([7, {"src": "a"}], [{"src": "a"}])]
)
def test_icons_that_can_not_be_read_are_dropped(icons, read):
    item = read_item("prompts", {"name": "p", "icons": icons}, [], modern=False)

    assert item is not None
    assert item.get("icons") == read


def test_what_is_told_of_one_item_begins_with_why_it_is_left_out_and_is_bounded():
    flaws = list[Flaw]()
    item = {**FINE, "icons": [7] * 20, "inputSchema": {"type": "object", "properties": 7}}
    read_item("tools", {**item, "inputSchema": {"type": "object"}}, few := [], modern=False)
    read_item("tools", item, flaws, modern=False)

    assert (len(few), len(flaws)) == (8, 8)
    assert [flaw.left_out for flaw in flaws] == [True, *[False] * 7]
