"""What a fragment says is, id for id, what the map gives to the whole text, whatever its slots hold."""

import importlib
import json
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaf_sdk import FragmentCache, Fragments, FragmentText, load_map, open_map, precache, verify_cache
from leaf_sdk.errors import FragmentCacheInvalid, FragmentUnknown, SeamUnsafe, TextNotUnicode
from leaf_sdk.leaf.bolt_on import moved_seams, parse_cache
from leaf_sdk.leaf.bolt_on.cache import CachedFragment, Ids, Open
from leaf_sdk.leaf.bolt_on.cuts import Cuts, cuts_of
from leaf_sdk.leaf.bolt_on.precaching import PROBES
from leaf_sdk.leaf.bolt_on.template import Core, Region, Slot, parse_template, plan
from leaf_sdk.testing import texts, tiny_map, tiny_map_bytes
from tests.cases import each_of

TINY = tiny_map()
TEXTS = {
    "sentence": "The time in {zone} is {time} on {day}, {date} (UTC{offset}).",
    "json": '{"city":"{city}","temperature":{t},"sky":"{sky}"}',
    "halves": "{a}orld hello {b}{c} th{d}e",
    "lines": "{head}\n\n- {one}\n- {two}\n",
    "percent": "100% of {x}%s %(y)d",
    "only": "{x}",
    "again": "{x} and {x}",
    "static": "hello world",
    "empty": "",
}


@cache
def smollm(path):
    return open_map(path)


@cache
def ready(path=None):
    token_map = TINY if path is None else smollm(path)
    return Fragments(token_map, precache(TEXTS, token_map))


@given(name=st.sampled_from(sorted(TEXTS)), values=st.lists(texts(), min_size=5, max_size=5))
def test_a_filled_fragment_has_the_ids_of_its_whole_text(name, values):
    source = FragmentText(name, TEXTS[name])
    slots = dict(zip(source.slots, values, strict=False))
    assert ready()[name].ids(slots) == TINY.encode(source.fill(slots))
    assert ready()[name].text(slots) == source.fill(slots)


@given(name=st.sampled_from(sorted(TEXTS)), values=st.lists(texts(), min_size=5, max_size=5))
def test_the_same_holds_under_a_real_models_map(smollm_path, name, values):
    source = FragmentText(name, TEXTS[name])
    slots = dict(zip(source.slots, values, strict=False))
    assert ready(smollm_path)[name].ids(slots) == smollm(smollm_path).encode(source.fill(slots))


@given(st.lists(st.one_of(st.from_regex(r"[ -~\n]{0,6}", fullmatch=True), st.sampled_from("abc").map(Slot))), st.data())
def test_any_template_has_the_ids_of_its_whole_text(parts, data):
    text = "".join(f"{{{part.name}}}" if isinstance(part, Slot) else part for part in parts)
    source = FragmentText("t", text)
    slots = {slot: data.draw(texts()) for slot in source.slots}
    fragments = Fragments(TINY, precache([source], TINY, probes=()))
    assert fragments["t"].ids(slots) == TINY.encode(source.fill(slots))


@given(texts())
def test_a_map_that_normalizes_joins_as_it_encodes_whole(value):
    fields = json.loads(tiny_map_bytes()) | {"x_normalizer": "NFC"}
    token_map = _loaded(json.dumps(fields).encode())
    fragments = Fragments(token_map, precache({"t": "a={x}= e{x}e, {x}"}, token_map, probes=()))
    assert fragments["t"].ids({"x": value}) == token_map.encode(f"a={value}= e{value}e, {value}")


@cache
def _loaded(data):
    return load_map(data)


def test_a_core_reaches_from_the_first_safe_cut_to_the_last():
    assert plan(parse_template("Hello there {who} in the {place} now, {x}!"), cuts_of(TINY)) == (
        Core("Hello there"),
        Region((" ", Slot("who"), " in")),
        Core(" the"),
        Region((" ", Slot("place"), " now")),
        Core(","),
        Region((" ", Slot("x"), "!")),
    )


def test_without_safe_cuts_the_whole_template_is_one_region():
    parts = parse_template("a {x} b")
    assert plan(parts, Cuts(())) == (Region(("a ", Slot("x"), " b")),)
    assert plan(("a b",), Cuts(())) == (Core("a b"),)


def test_slots_are_names_in_braces_and_other_braces_are_text():
    assert parse_template("{1} {a-b} {ok}{_x}") == ("{1} {a-b} ", Slot("ok"), Slot("_x"))
    assert parse_template("") == ()


def test_the_cache_is_the_published_one_with_our_keys_beside_it(golden_map, vectors):
    published = vectors("bolt_on")["precache"]
    fragments = [FragmentText(f["id"], f["text"], f["kind"] == "static") for f in published["fragments"]]
    written = json.loads(precache(fragments, golden_map).to_json())
    for name, fragment in written["fragments"].items():
        ours = {key: value for key, value in fragment.items() if not key.startswith("x_")}
        assert ours == published["cache"]["fragments"][name]
    assert written["tokenizerHash"] == published["cache"]["tokenizerHash"]


def test_a_rendered_line_differs_from_the_published_one_where_that_drifts(golden_map, vectors):
    published = vectors("bolt_on")["precache"]["render_line"]
    fragments = Fragments(golden_map, precache({"line": "hello {who} in the {place}!"}, golden_map))
    ids = fragments["line"].ids(published["slots"])
    assert ids == golden_map.encode("hello world in the tin!")
    assert ids != published["ids"]  # there every slot is encoded alone


def test_the_published_seam_hazard_is_gone(golden_map, vectors):
    hazard = vectors("bolt_on")["precache"]["seam_hazard"]
    fragments = Fragments(golden_map, precache({"seam": hazard["template"]}, golden_map))
    assert fragments["seam"].ids({"w": hazard["slot"]}) == hazard["ids_of_whole_string"]


def test_a_cache_of_another_tool_is_read_and_its_seams_are_planned_anew(golden_map, vectors):
    published = vectors("bolt_on")["precache"]
    cache_read = parse_cache(json.dumps(published["cache"]).encode())
    fragments = Fragments(golden_map, cache_read)
    whole = golden_map.encode("hello world in the tin!")
    assert fragments["line"].ids(published["render_line"]["slots"]) == whole
    assert fragments["seam"].ids({"w": "hello w"}) == golden_map.encode("hello world")
    assert verify_cache(cache_read, golden_map) == []


def test_moved_seams_are_shown_with_a_text_that_proves_them():
    seams = moved_seams({"seam": "{w}orld", "safe": "x"}, TINY, probes=["hello w"])
    assert [(seam.fragment, seam.slot, seam.example) for seam in seams] == [("seam", "w", "hello world")]
    assert seams[0].whole == tuple(TINY.encode("hello world")) != seams[0].apart


def test_a_plan_that_is_wrong_is_refused_with_the_text_that_shows_it(monkeypatch):
    def careless(parts, token_map):
        return tuple(Open((part,)) if isinstance(part, Slot) else Ids(tuple(token_map.encode(part))) for part in parts)

    monkeypatch.setattr(importlib.import_module("leaf_sdk.leaf.bolt_on.precaching"), "core_ids", careless)
    with pytest.raises(SeamUnsafe) as raised:
        precache({"seam": "{w}orld"}, TINY, probes=["x", "hello w"])
    assert raised.value.example == "hello world"


def test_probes_hold_what_joins_badly():
    assert {"", " ", "\u0301", "'s", "<|im_end|>", "\r\n", "%s"} <= set(PROBES)


def test_a_cache_file_comes_back_as_it_was():
    cache_made = precache(TEXTS, TINY)
    assert parse_cache(cache_made.to_json().encode()) == cache_made
    assert verify_cache(parse_cache(cache_made.to_json().encode()), TINY) == []


@pytest.mark.parametrize("key", ["parts", "x_pieces", "ids"])
def test_a_changed_id_is_found(key):
    name = "static" if key == "ids" else "sentence"
    fields = json.loads(precache(TEXTS, TINY).to_json())
    held = fields["fragments"][name][key]
    (held if key == "ids" else held[0]["ids"])[0] = 65
    faults = verify_cache(parse_cache(json.dumps(fields).encode()), TINY)
    assert len(faults) == 1
    assert repr(name) in faults[0]


def test_a_changed_text_is_found():
    fields = json.loads(precache({"t": "hello {x}"}, TINY).to_json())
    fields["fragments"]["t"]["x_text"] = "hullo {x}"
    assert "x_text 'hullo {x}'" in verify_cache(parse_cache(json.dumps(fields).encode()), TINY)[0]


def test_a_cache_of_another_map_is_refused_and_reported():
    foreign = FragmentCache("0" * 64, {})
    with pytest.raises(FragmentCacheInvalid, match="0000"):
        Fragments(TINY, foreign)
    assert len(verify_cache(foreign, TINY)) == 1


def test_a_cache_may_be_named_by_the_hash_of_the_tokenizer_file():
    by_file = precache({"t": "hello"}, TINY, tokenizer_hash="A" * 64)
    assert by_file.tokenizer_hash == "a" * 64
    assert Fragments(TINY, by_file, also_known_as=["a" * 64])["t"].ids({}) == TINY.encode("hello")
    with pytest.raises(FragmentCacheInvalid):
        Fragments(TINY, by_file)


@each_of("bad", [300, 303, 290, -1, 2**40])
@each_of("place", ["parts", "pieces"])
def test_ids_that_no_text_may_have_are_refused(bad, place):
    good, wrong = (Ids((104,)),), (Ids((104, bad)),)
    fragment = CachedFragment(
        FragmentText("t", "h", static=True),
        wrong if place == "parts" else good,
        wrong if place == "pieces" else good,
    )
    with pytest.raises(FragmentCacheInvalid, match=str(bad)[:5]):
        Fragments(TINY, FragmentCache(TINY.map_id.removeprefix("sha256:"), {"t": fragment}))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "missing slot 'x'"),
        ({"x": "1", "y": "2"}, "no slot 'y'"),
        ({"x": 1}, "slot 'x' of fragment .* has a value that is not a str"),
        ({"y": "2"}, "missing slot 'x'"),
    ],
)
def test_values_that_do_not_fit_the_slots_are_named(values, says):
    fragments = Fragments(TINY, precache({"t": "a {x}"}, TINY))
    for method in (fragments["t"].ids, fragments["t"].text):
        with pytest.raises(FragmentUnknown, match=says):
            method(values)


def test_an_unknown_fragment_is_named_with_those_that_are_there():
    with pytest.raises(FragmentUnknown, match=r"'nope', expected one of \['again', 'empty'"):
        ready()["nope"]


def test_a_lone_surrogate_in_a_slot_has_no_ids():
    with pytest.raises(TextNotUnicode):
        ready()["only"].ids({"x": "\ud800"})


def test_long_values_are_encoded_and_not_remembered():
    long = "hello world " * 100
    assert ready()["only"].ids({"x": long}) == TINY.encode(long)


def test_two_fragments_with_one_id_are_refused():
    with pytest.raises(FragmentCacheInvalid, match="'t'"):
        precache([FragmentText("t", "a"), FragmentText("t", "b")], TINY)


@each_of(
    "document",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"tokenizerHash":"x","fragments":{}}',
        b'{"tokenizerHash":"%s","fragments":[]}' % (b"a" * 64),
        b'{"tokenizerHash":"%s","fragments":{"t":{"kind":"odd"}}}' % (b"a" * 64),
        b'{"tokenizerHash":"%s","fragments":{"t":{"kind":"static","ids":["1"]}}}' % (b"a" * 64),
        b'{"tokenizerHash":"%s","fragments":{"t":{"kind":"static","ids":[true]}}}' % (b"a" * 64),
        b'{"tokenizerHash":"%s","fragments":{"t":{"kind":"template","parts":[{}]}}}' % (b"a" * 64),
        b'{"tokenizerHash":"%s","fragments":{"t":{"kind":"static","ids":[],"x_text":1}}}' % (b"a" * 64),
        b'{"tokenizerHash":"%s","fragments":{"t":{"kind":"template","parts":[],"x_text":"","x_pieces":[{"region":[1]}]}}}'
        % (b"a" * 64),
        b"[" * 100_000,
        b" " * (16 * 2**20 + 1),
    ],
)
def test_what_is_no_cache_is_refused(document):
    with pytest.raises(FragmentCacheInvalid, match="build it again"):
        parse_cache(document)
