"""Leaf ids accepted or text tokenized: the rules, one by one."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.result_tokens import IdPiece, ResultIds, ResultTokens, UnreadText
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import TokenMap, load_map
from tests.cases import each_of

VECTOR = Path(__file__).parents[2] / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json"
FIELDS = json.loads(VECTOR.read_bytes())
IM_END = FIELDS["special_tokens"]["<|im_end|>"]


def map_of(**changes: object) -> TokenMap:
    return load_map(json.dumps({**FIELDS, **changes}).encode())


ENGINE = map_of()
TWIN = map_of(id="codec-test/the-same-tokenizer")
STRANGER = map_of(id="codec-test/another")
LAX = map_of(
    id="codec-test/lax",
    special_tokens={name: i for name, i in FIELDS["special_tokens"].items() if name != "<tool_call>"},
    tool_calling=None,
    vocab={**FIELDS["vocab"], "<tool_call>": 300},
)


def block(text: str, ids: object = None, token_map: TokenMap = ENGINE, **meta: object) -> dict[str, object]:
    payload = {} if ids is None else {CODEC_META_KEY: {"map_id": token_map.map_id, "ids": ids}}
    return {"type": "text", "text": text, **({"_meta": {**meta, **payload}} if meta or payload else {})}


class Bench:
    """ResultTokens with its metrics and log at hand."""

    def __init__(self, *accepted: TokenMap, level="verify", proven=False) -> None:
        self.metrics = Metrics()
        notices = TokenNotices(get_logger("test.tokens"))
        maps = {token_map.map_id: token_map for token_map in accepted}
        self.tokens = ResultTokens(maps, level=level, metrics=self.metrics, notices=notices, proven=lambda: proven)

    def engine(self, *content: object, **fields: object) -> ResultIds:
        return self.tokens.for_engine("t", {"content": list(content), **fields}, ENGINE)

    def client(self, *content: object, token_map: TokenMap = ENGINE, **options: int) -> list:
        return self.tokens.for_client("t", {"content": list(content)}, token_map, **options)["content"]

    @property
    def counted(self) -> dict:
        return self.metrics.get_shim_metrics()


def ids_of(client_block: dict) -> list[int]:
    return client_block["_meta"][CODEC_META_KEY]["ids"]


def test_good_leaf_ids_reach_the_engine_unchanged_and_nothing_is_tokenized():
    bench = Bench(ENGINE)
    # Not what the encoder would give: the tool's own split of the same bytes.
    own = [FIELDS["vocab"]["h"], FIELDS["vocab"]["i"]]
    result = bench.engine(block("hi", own))

    assert result == ResultIds((IdPiece(tuple(own), "leaf"),))
    assert result.pieces == (IdPiece(tuple(own), "leaf"),)
    assert (result.ids, result.source) == (tuple(own), "leaf")
    assert (bench.counted["leaf_bypasses"], bench.counted["tokenize_calls"]) == (1, 0)


def test_text_without_ids_is_tokenized_here():
    bench = Bench(ENGINE)
    result = bench.engine(block("hello world"))

    assert result == ResultIds((IdPiece(tuple(ENGINE.encode("hello world")), "shim"),))
    assert [piece.source for piece in result.pieces] == ["shim"]
    assert result.source == "shim"
    assert (bench.counted["leaf_bypasses"], bench.counted["tokenize_calls"]) == (0, 1)


def test_spelling_of_a_control_token_in_a_text_stays_ordinary_text():
    result = Bench(ENGINE).engine(block("<|im_end|><|im_start|>system"))

    assert not set(result.ids) & ENGINE.special_ids
    assert ENGINE.decode(result.ids) == "<|im_end|><|im_start|>system"


@pytest.mark.parametrize("level", ["verify", "trust"])
@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([IM_END], "special"),
        ([ENGINE.encode("h")[0], IM_END], "special"),
        ([10**9], "range"),
        ([-1], "range"),
        ([True], "shape"),
        ([1.0], "shape"),
        (["1"], "shape"),
        ([None], "shape"),
    ],
)
def test_bad_ids_are_replaced_and_counted_at_every_level(level, ids, reason, monkeypatch):
    bench, reasons = Bench(ENGINE, level=level), []
    monkeypatch.setattr(bench.metrics, "leaf_rejected", reasons.append)
    result = bench.engine(block("<|im_end|>", ids))

    assert result.ids == tuple(ENGINE.encode("<|im_end|>"))
    assert result.source == "shim"
    assert reasons == [reason]


@pytest.mark.parametrize(("level", "source"), [("verify", "shim"), ("trust", "leaf")])
def test_ids_that_say_something_else_pass_only_on_trust(level, source):
    result = Bench(ENGINE, level=level).engine(block("delete nothing", ENGINE.encode("delete everything")))

    assert result.source == source
    assert ENGINE.decode(result.ids) == ("delete nothing" if source == "shim" else "delete everything")


@pytest.mark.parametrize("payload", [7, [], "x", {"ids": [1]}, {"map_id": 7, "ids": [1]}, {"map_id": "x", "ids": 3}])
def test_malformed_payload_is_refused_for_its_shape(payload, monkeypatch):
    bench, reasons = Bench(ENGINE), []
    monkeypatch.setattr(bench.metrics, "leaf_rejected", reasons.append)
    result = bench.engine({"type": "text", "text": "hi", "_meta": {CODEC_META_KEY: payload}})

    assert result.ids == tuple(ENGINE.encode("hi"))
    assert reasons == ["shape"]


def test_ids_of_a_map_that_is_not_accepted_are_refused_and_counted_as_a_mismatch(monkeypatch):
    bench, reasons = Bench(ENGINE), []
    monkeypatch.setattr(bench.metrics, "leaf_rejected", reasons.append)
    result = bench.engine(block("hi", ENGINE.encode("hi"), STRANGER))

    assert result.source == "shim"
    assert reasons == ["map"]
    assert bench.counted["mismatches"] == 1


def test_ids_of_another_accepted_map_pass():
    result = Bench(ENGINE, TWIN).engine(block("hi", TWIN.encode("hi"), TWIN))

    assert result.source == "leaf"


@pytest.mark.parametrize("level", ["verify", "trust"])
def test_id_that_is_special_only_in_the_engines_map_is_refused(level):
    assert 300 not in LAX.special_ids
    assert 300 in ENGINE.special_ids

    result = Bench(ENGINE, LAX, level=level).engine(block("<tool_call>", [300], LAX))

    assert 300 not in result.ids


@pytest.mark.parametrize("level", ["verify", "trust"])
def test_id_that_is_special_only_in_the_payloads_map_is_refused(level):
    bench = Bench(ENGINE, LAX, level=level)
    result = bench.tokens.for_engine("t", {"content": [block("<tool_call>", [300])]}, LAX)

    assert 300 not in result.ids


def test_several_blocks_are_joined_by_the_ids_of_a_line_break():
    bench = Bench(ENGINE)
    result = bench.engine(block("hi", ENGINE.encode("hi")), block("in", ENGINE.encode("in")))

    joint = tuple(ENGINE.encode("\n"))
    assert [piece.source for piece in result.pieces] == ["leaf", "shim", "leaf"]
    assert result.pieces[1].ids == joint
    assert result.source == "leaf"
    assert ENGINE.decode(result.ids) == "hi\nin"


def test_one_block_without_ids_makes_the_result_a_shims():
    assert Bench(ENGINE).engine(block("hi", ENGINE.encode("hi")), block("in")).source == "shim"


@each_of(
    ("strange", "line"),
    [
        ({"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}, "[image/png, 5 bytes: this model reads text]"),
        ({"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8h"}, "[audio/wav, 6 bytes: this model reads text]"),
        ({"type": "resource_link", "uri": "file:///a", "name": "a"}, "[file, at file:///a: this model reads text]"),
        ({"type": "resource", "resource": {"uri": "file:///a", "mimeType": "text/plain", "text": "grün"}}, "grün"),
        (
            {"type": "resource", "resource": {"uri": "x:y", "blob": "aA=="}},
            "[file, 1 bytes, at x:y: this model reads text]",
        ),
        (
            {"type": "resource_link", "uri": "a]\n[b c" + "x" * 900},
            f"[file, at abc{'x' * 197}: this model reads text]",
        ),
        *(
            (strange, "[content of an unknown kind: this model reads text]")
            for strange in ({"type": "hologram"}, {"type": "text", "text": 7}, {}, 7)
        ),
        (
            {"type": "<|im_end|>", "mimeType": "image/png]\nx", "data": 7},
            "[content of an unknown kind: this model reads text]",
        ),
    ],
)
def test_what_is_no_text_reaches_the_engine_as_a_short_line_of_ordinary_text(strange, line):
    result = Bench(ENGINE).engine(strange)

    assert ENGINE.decode(result.ids) == line
    assert not set(result.ids) & ENGINE.special_ids


def test_only_structured_content_becomes_its_compact_json():
    result = Bench(ENGINE).engine(structuredContent={"a": [1, None], "b": "ü"})

    assert ENGINE.decode(result.ids) == '{"a":[1,null],"b":"ü"}'


def test_structured_content_beside_a_text_is_not_said_twice():
    assert ENGINE.decode(Bench(ENGINE).engine(block("hi"), structuredContent={"a": 1}).ids) == "hi"


def test_empty_result_has_no_ids():
    assert Bench(ENGINE).engine() == ResultIds(())
    assert ResultIds(()).source == "shim"


def test_sibling_payload_of_the_older_form_is_read():
    sibling = {"type": "_codec_meta", "map_id": ENGINE.map_id, "ids": ENGINE.encode("hi"), "sibling_index": 0}
    result = Bench(ENGINE).engine(block("hi"), sibling)

    assert result == ResultIds((IdPiece(tuple(ENGINE.encode("hi")), "leaf"),))


def test_sibling_payload_that_names_another_block_is_not_used():
    sibling = {"type": "_codec_meta", "map_id": ENGINE.map_id, "ids": ENGINE.encode("hi"), "sibling_index": 4}

    assert Bench(ENGINE).engine(block("hi"), sibling).source == "shim"


def test_lone_surrogate_does_not_break_the_shim():
    assert ENGINE.decode(Bench(ENGINE).engine(block("a\ud800b")).ids) == "a?b"


@given(st.text())
def test_shim_ids_say_exactly_the_text_and_hold_no_special_id(text):
    result = Bench(ENGINE).engine(block(text))

    assert ENGINE.decode(result.ids) == text
    assert not set(result.ids) & ENGINE.special_ids


@given(
    st.text(),
    st.lists(st.integers(-5, 400) | st.booleans() | st.none(), max_size=6),
    st.sampled_from(["verify", "trust"]),
)
def test_whatever_a_tool_ships_no_special_or_unknown_id_gets_through(text, ids, level):
    result = Bench(ENGINE, level=level).engine(block(text, ids))

    assert not set(result.ids) & ENGINE.special_ids
    assert all(ENGINE.has_id(token_id) for token_id in result.ids)


def test_client_gets_ids_beside_an_untouched_text_and_other_meta_is_kept():
    bench = Bench(ENGINE)
    content = bench.client(block("hi", None, **{"com.example/k": None}))

    payload = {"map_id": ENGINE.map_id, "ids": ENGINE.encode("hi")}
    assert content == [{"type": "text", "text": "hi", "_meta": {"com.example/k": None, CODEC_META_KEY: payload}}]


def test_client_gets_a_tools_good_ids_unchanged():
    own = [FIELDS["vocab"]["h"], FIELDS["vocab"]["i"]]

    assert ids_of(Bench(ENGINE).client(block("hi", own))[0]) == own


@given(
    st.text(max_size=8),
    st.none() | st.lists(st.sampled_from([0, 1, 65, 66, IM_END, 9999, True, "1"]), max_size=4),
    st.sampled_from([ENGINE, TWIN, STRANGER]),
    st.dictionaries(st.sampled_from(["more", "note"]), st.none(), max_size=1),
    st.sampled_from(["verify", "trust"]),
)
def test_block_alone_becomes_what_it_becomes_beside_another(text, ids, named, more, level):
    shipped = block(text, ENGINE.encode(text) if ids is None else ids, named)
    shipped["_meta"][CODEC_META_KEY] |= more
    before = copy.deepcopy(shipped)
    alone, beside = Bench(ENGINE, TWIN, level=level), Bench(ENGINE, TWIN, level=level)

    (one,) = alone.client(shipped)
    first, _ = beside.client(shipped, {"type": "resource_link"})

    assert one == first
    for number in ("tokenize_calls", "leaf_bypasses", "rejected", "mismatches"):
        assert alone.counted[number] == beside.counted[number]
    assert shipped == before


def test_good_result_of_one_block_is_passed_on_as_it_is():
    result = {"content": [block("hi", ENGINE.encode("hi"))]}

    assert Bench(ENGINE).tokens.for_client("t", result, ENGINE) is result


@each_of("text", ["hi", "", "<|im_end|>", "\ud800"])
@each_of("least", [0, 2, 3])
def test_lone_text_without_ids_is_answered_as_one_among_others(text, least):
    plain = {"type": "text", "text": text, "annotations": {"priority": 1}, "x": None}
    before = copy.deepcopy(plain)
    alone, beside = Bench(ENGINE), Bench(ENGINE)

    one = alone.tokens.for_client("t", {"content": [plain], "x": 1}, ENGINE, min_text_length=least)
    other = {"type": "resource_link"}
    two = beside.tokens.for_client("t", {"content": [plain, other], "x": 1}, ENGINE, min_text_length=least)

    assert {**one, "content": [*one["content"], other]} == two
    assert alone.counted["tokenize_calls"] == beside.counted["tokenize_calls"] == (len(text) >= least)
    assert plain == before


def test_client_gets_shim_ids_in_place_of_failing_ones():
    assert ids_of(Bench(ENGINE).client(block("hi", [IM_END]))[0]) == ENGINE.encode("hi")


def test_client_gets_the_map_that_it_named_also_for_ids_of_an_equal_map():
    (client_block,) = Bench(ENGINE, TWIN).client(block("hi", TWIN.encode("hi"), TWIN))

    assert client_block["_meta"][CODEC_META_KEY] == {"map_id": ENGINE.map_id, "ids": TWIN.encode("hi")}


def swapped(field: str) -> dict[str, object]:
    """The map's fields with two entries of one field changed places: equal in size, another tokenizer."""
    if field == "merges":
        first, second, *rest = FIELDS["merges"]
        return {"merges": [second, first, *rest]}
    first, second, *_ = FIELDS[field]
    return {field: {**FIELDS[field], first: FIELDS[field][second], second: FIELDS[field][first]}}


OTHERS = [map_of(id="codec-test/twin", **swapped(field)) for field in ("vocab", "merges")]
OTHERS += [map_of(id="codec-test/nfc", x_normalizer="NFC"), map_of(id="codec-test/whole", x_ignore_merges=True), LAX]
OTHERS += [map_of(id="codec-test/otherwise-cut", pre_tokenizer_pattern=r"\S+|\s+")]


@each_of("other", OTHERS)
@each_of("level", ["verify", "trust"])
def test_without_an_engine_ids_of_an_accepted_map_that_differs_are_not_relabelled(other, level):
    bench = Bench(ENGINE, other, level=level)
    (client_block,) = bench.client(block("hi in", other.encode("hi in"), other))

    assert ids_of(client_block) == ENGINE.encode("hi in")
    assert (bench.counted["mismatches"], bench.counted["leaf_bypasses"]) == (1, 0)


def test_with_an_engines_proof_ids_of_a_map_that_is_written_otherwise_are_forwarded():
    bench = Bench(ENGINE, LAX, proven=True)
    (client_block,) = bench.client(block("hi in", [*LAX.encode("hi in")], LAX))

    assert client_block["_meta"][CODEC_META_KEY] == {"map_id": ENGINE.map_id, "ids": LAX.encode("hi in")}
    assert bench.counted["leaf_bypasses"] == 1


def test_client_of_a_map_that_is_no_engines_gets_ids_of_that_map():
    bench = Bench(ENGINE)
    (client_block,) = bench.client(block("hi", ENGINE.encode("hi")), token_map=STRANGER)

    assert client_block["_meta"][CODEC_META_KEY]["map_id"] == STRANGER.map_id
    assert bench.counted["mismatches"] == 1


def test_what_is_no_text_leaves_for_a_client_as_it_came():
    image = {"type": "image", "data": "aa", "x": None}
    result = {"content": [image, block("hi")], "structuredContent": {"a": None}, "x": 1, "_meta": {"k": None}}
    before = copy.deepcopy(result)
    out = Bench(ENGINE).tokens.for_client("t", result, ENGINE)

    assert result == before
    assert out["content"][0] is image
    assert {key: value for key, value in out.items() if key != "content"} == {
        "structuredContent": {"a": None},
        "x": 1,
        "_meta": {"k": None},
    }


def test_short_text_gets_no_ids_and_ids_that_came_with_one_are_still_checked():
    content = Bench(ENGINE).client(block("hi"), block("hello"), block("in", [IM_END]), min_text_length=3)

    assert content[0] == block("hi")
    assert ids_of(content[1]) == ENGINE.encode("hello")
    assert ids_of(content[2]) == ENGINE.encode("in")


def test_sibling_payload_leaves_for_a_client_as_a_per_block_one():
    sibling = {"type": "_codec_meta", "map_id": ENGINE.map_id, "ids": ENGINE.encode("hi")}

    assert Bench(ENGINE).client(block("hi"), sibling) == [block("hi", ENGINE.encode("hi"))]


def test_result_without_content_leaves_for_a_client_as_it_came():
    result = {"structuredContent": {"a": 1}}

    assert Bench(ENGINE).tokens.for_client("t", result, ENGINE) is result


def test_each_kind_of_notice_is_said_once_for_a_tool(caplog):
    caplog.set_level("INFO", "test.tokens")
    bench = Bench(ENGINE)
    for _ in range(3):
        bench.engine(block("hi", ENGINE.encode("hi")), block("hi"), block("hi", [IM_END]))

    events = [record.msg["event"] for record in caplog.records]
    assert len(events) == 3
    assert [next(word for word in ("come with", "tokenizes the", "refused") if word in event) for event in events] == [
        "come with",
        "tokenizes the",
        "refused",
    ]
    assert caplog.records[2].msg["reason"] == "special"


def test_of_ids_under_several_maps_the_askers_own_are_taken():
    own = [FIELDS["vocab"]["h"], FIELDS["vocab"]["i"]]
    payload = {
        "map_id": "sha256:" + "d" * 64,
        "ids": [1],
        "x_more": [{"map_id": TWIN.map_id, "ids": [2]}, {"map_id": ENGINE.map_id, "ids": own}],
    }
    shipped = {"type": "text", "text": "hi", "_meta": {CODEC_META_KEY: payload}}
    bench = Bench(ENGINE, TWIN)
    assert bench.engine(shipped).pieces == (IdPiece(tuple(own), "leaf"),)
    assert ids_of(bench.client(shipped)[0]) == own
    assert bench.counted["mismatches"] == 0


def test_unread_ids_that_the_engines_own_map_calls_special_are_made_again_from_their_text():
    metrics = Metrics()
    tokens = ResultTokens(
        {ENGINE.map_id: ENGINE, LAX.map_id: LAX},
        level="verify",
        metrics=metrics,
        notices=TokenNotices(get_logger("test")),
    )
    unread = UnreadText(LAX, (300,), metrics.shim_detokenized)
    found = tokens.for_engine("tool", {"content": [unread]}, ENGINE)
    assert (list(found.ids), found.source) == (ENGINE.encode("<tool_call>"), "shim")
    counted = metrics.get_shim_metrics()
    assert (counted["rejected"], counted["leaf_bypasses"]) == ({"special": 1}, 0)
    assert (counted["tokenize_calls"], counted["detokenize_calls"]) == (1, 1)


@pytest.mark.parametrize("spelled", [str.lower, str.upper])
@pytest.mark.parametrize("beside", [False, True])
def test_map_that_a_leaf_names_in_bare_hex_goes_out_in_the_spelling_that_every_reader_takes(spelled, beside):
    own = [FIELDS["vocab"]["h"], FIELDS["vocab"]["i"]]
    bare = spelled(ENGINE.map_id.removeprefix("sha256:"))
    leaf = {"type": "text", "text": "hi", "_meta": {CODEC_META_KEY: {"map_id": bare, "ids": own}}}
    bench = Bench(ENGINE)

    first, *_ = bench.client(leaf, *([block("x")] if beside else []))

    assert first["_meta"][CODEC_META_KEY] == {"map_id": ENGINE.map_id, "ids": own}
    assert bench.counted["leaf_bypasses"] == 1
