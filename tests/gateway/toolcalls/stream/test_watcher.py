"""The raw watcher against Codec's vectors, a plain model of its contract, and every way to cut a stream."""

import itertools
import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.toolcalls.stream.watcher import REGION_CAP, ToolWatcher, WatchEvent
from tests.cases import each_of

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "tool_watcher.json").read_text())
START, END = VECTORS["start_id"], VECTORS["end_id"]

Told = tuple[str, list[int], str | None]


def plain(events: Sequence[WatchEvent]) -> list[Told]:
    """Events as lists, passthrough joined: where it is cut says nothing."""
    out: list[Told] = []
    for event in events:
        if event.kind == "passthrough" and out and out[-1][0] == "passthrough":
            out[-1] = ("passthrough", [*out[-1][1], *event.ids], None)
        else:
            out.append((event.kind, list(event.ids), event.finish_reason))
    return out


def expected(ids: Sequence[int], cap: int, *, ends: bool) -> list[Told]:
    """The contract, one id at a time."""
    out: list[Told] = []
    body: list[int] | None = None
    capped = False
    for token_id in ids:
        if body is None and token_id == START:
            body, capped = [], False
        elif body is None:
            out.append(("passthrough", [token_id], None))
        elif token_id == END:
            if not capped:
                out.append(("region", body, None))
            body = None
        elif token_id == START:
            out.append(("nested_start", [START], None))
        elif len(body) < cap:
            body.append(token_id)
        elif not capped:
            capped = True
            out.append(("overflow", list(body), None))
    if ends and body is not None:
        out.append(("truncated", body, "length"))
    return plain([WatchEvent(kind, array("I", ids), why) for kind, ids, why in out])  # pyright: ignore[reportArgumentType]


@each_of("case", VECTORS["cases"])
def test_the_vectors_of_the_contract_hold(case: dict[str, Any]) -> None:
    watcher = ToolWatcher(START, END, case["region_cap"] or 0)
    events = [event for feed in case["feeds"] for event in watcher.feed(feed)]
    if case["end"] is not None:
        events += watcher.end(case["end"]["finish_reason"])
    assert plain(events) == [(e["kind"], e["ids"], e.get("finish_reason")) for e in case["events"]]


def test_a_call_amid_text_is_cut_out_whole() -> None:
    vector = VECTORS["end_to_end"]
    events = ToolWatcher(START, END).feed(vector["ids"])
    assert plain(events) == [(e["kind"], e["ids"], None) for e in vector["events"]]
    assert bytes(list(events[1].ids)).decode() == vector["events"][1]["text"]


# Ids whose bytes hold the markers' bytes at odd places, beside the markers themselves.
tricky_ids = st.sampled_from([START, END, 0, 1, 44, 45, 256, START << 8, END << 8, START << 16, 2**32 - 1])
streams = st.lists(tricky_ids, max_size=40)
cuts = st.lists(st.integers(0, 1000), max_size=8)


@given(streams, cuts, st.integers(1, 5), st.booleans())
def test_any_stream_in_any_batches_gives_what_the_contract_says(
    ids: list[int], cuts: list[int], cap: int, ends: bool
) -> None:
    places = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    watcher = ToolWatcher(START, END, cap)
    events = [event for a, b in itertools.pairwise(places) for event in watcher.feed(ids[a:b])]
    assert watcher.inside == bool(expected(ids, cap, ends=True)[len(expected(ids, cap, ends=False)) :])
    if ends:
        events += watcher.end("length")
        assert not watcher.inside
    assert plain(events) == expected(ids, cap, ends=ends)


@given(streams, st.sampled_from([1, 2, 256, 65_536]))
def test_markers_of_any_number_are_found_where_they_stand_and_nowhere_else(ids: list[int], start: int) -> None:
    events = ToolWatcher(start, start + 1).feed(ids)
    assert [e.ids[0] for e in events if e.kind == "nested_start"] == [start] * sum(
        e.kind == "nested_start" for e in events
    )
    seen = ids.index(start) if start in ids else len(ids)
    assert [i for e in events[:1] if e.kind == "passthrough" for i in e.ids] == ids[:seen]


@pytest.mark.parametrize("wrap", [list, tuple, lambda ids: array("I", ids), lambda ids: array("I", ids).tobytes()])
def test_ids_come_as_list_tuple_array_or_bytes(wrap: Any) -> None:
    ids = [7, START, 8, END, 9]
    told = [("passthrough", [7], None), ("region", [8], None), ("passthrough", [9], None)]
    assert plain(ToolWatcher(START, END).feed(wrap(ids))) == told
    single = ToolWatcher(START, END)
    assert plain([event for token_id in ids for event in single.feed(wrap([token_id]))]) == told


def test_events_hold_copies() -> None:
    ids = array("I", [7, START, 8, END])
    events = ToolWatcher(START, END).feed(ids)
    for n in range(len(ids)):
        ids[n] = 0
    assert plain(events) == [("passthrough", [7], None), ("region", [8], None)]


def test_an_overflow_s_prefix_is_not_the_body_that_goes_on() -> None:
    watcher = ToolWatcher(START, END, 1)
    (overflow,) = watcher.feed([START, 1, 2])
    (truncated,) = watcher.end("length")
    truncated.ids.append(3)
    assert list(overflow.ids) == [1]


def test_after_the_end_the_next_stream_begins_outside() -> None:
    watcher = ToolWatcher(START, END, 1)
    watcher.feed([START, 1, 2])
    watcher.end()
    assert watcher.end() == []
    assert plain(watcher.feed([5, START, 6, END])) == [("passthrough", [5], None), ("region", [6], None)]


@pytest.mark.parametrize("bad", [[-1], [2**32], [7, START, -1]])
def test_a_feed_with_an_id_beyond_32_bits_is_refused_and_not_read(bad: list[int]) -> None:
    watcher = ToolWatcher(START, END)
    with pytest.raises(OverflowError):
        watcher.feed(bad)
    assert not watcher.inside


def test_bytes_that_are_no_whole_ids_are_refused() -> None:
    with pytest.raises(ValueError, match="multiple"):
        ToolWatcher(START, END).feed(b"\x01\x02\x03")


def test_the_cap_is_codec_s_unless_another_is_given() -> None:
    assert REGION_CAP == 65_536
    for cap in (0, -1, REGION_CAP):
        watcher = ToolWatcher(START, END, cap)
        assert watcher.feed([START, *[1] * REGION_CAP]) == []
        assert [event.kind for event in watcher.feed([1])] == ["overflow"]


def test_region_beyond_the_cap_is_read_to_its_end_and_kept_no_further() -> None:
    events = ToolWatcher(START, END, 1).feed([START, 1, 2, 3, START, 4, END, 5])
    assert next(event.kind for event in events) == "overflow"
    assert plain(events)[-1] == ("passthrough", [5], None)
    assert all(3 not in event.ids for event in events)


def test_bytes_that_only_look_like_a_marker_do_not_end_the_search_for_it() -> None:
    lookalikes = [256] * 5
    events = ToolWatcher(1, 2).feed([*lookalikes, 0, 1, *lookalikes, 512, 0, 2, 512])
    assert plain(events) == [
        ("passthrough", [*lookalikes, 0], None),
        ("region", [*lookalikes, 512, 0], None),
        ("passthrough", [512], None),
    ]
